/* The notify lock: no lost wake-up, checked in every order that the steps can take.
 *
 * One queue; W worker processes of S slots; T transactions of producers; FAULTS times a process is killed or stuck.
 * At any moment the outside world may stand still for ever (`still`): no handler returns, no transaction begins or
 * ends. Then the workers come to rest, and no job that could be claimed may be left while one of them has a free
 * slot. There are no polls and no timers here: a job is found by a notification or by a second look.
 *
 * in the model          in PostgreSQL
 * jobs                  committed pending jobs that no transaction has locked
 * locked                those that one has locked: a claim skips them, but sees that they are there
 * running[w]            jobs that worker w has claimed
 * duty_lock             0, or 1 + the worker whose listener's session has this advisory lock: who is on duty
 * notify_lock           0, or 1 + the same, of the lock that inserts probe: who is on duty, and sleeps
 * probes                momentary shared locks on the notify lock
 * open                  bit t: transaction t has RowExclusiveLock on pgwake.jobs or jobs_live, by pg_locks
 * notified, passed      bit w: worker w has been sent a notification of jobs, or of duty, since it last cleared them.
 *                       Commits deliver them at once: coming later, they cause a look more, never one less
 * Transaction           inserts (lock; then the trigger's probe, a lock and an unlock), then commits or rolls back.
 *                       Or: locks a job, as cancel_job does, and rolls back, which tells nobody
 * Worker                each atomic is one effect on the server, and what the process makes of the answer
 *   look                clears the notifications, then claims: the rows get locked, and later the claim commits
 *   release, pass       unpark: pg_advisory_unlock of both; after it pg_notify on the channel pgwake_duty
 *   try                 park: pg_try_advisory_lock of the duty lock
 *   unmute              pg_try_advisory_lock of the notify lock until it is had: only probes are in the way
 *   mute                pg_advisory_unlock of the notify lock alone: on duty, and looks so often that nobody need notify
 *   end_passive         sleeps without the duty lock, heeds only that duty is passed
 *   end_asleep          sleeps with both locks, heeds only notifications of jobs, and takes second looks
 *   end_busy            all slots are taken
 *   end_away            stuck, draining or cut off from its listener's session: both have been released for it
 * Supervisor            after a kill: the server ends the process's sessions, its jobs are given back, duty is
 *                       passed; each before, while or after the process that takes its place starts
 *
 * Nothing is lost by these: transactions begin in the order of their numbers, and faults befall worker 0.
 *
 *   spin -a -DFAULTS=1 notify_lock.pml && cc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c && ./pan -m10000
 *
 * -DWITHOUT=PASS_DUTY, or another of these, leaves a part of the protocol out; then a job is lost. See README.md.
 */

#ifndef W
#define W 2
#endif
#ifndef S
#define S 1
#endif
#ifndef T
#define T 2
#endif
#ifndef FAULTS
#define FAULTS 0
#endif
#ifndef WITHOUT
#define WITHOUT 0
#endif

#define SECOND_LOOK      1  /* looks again when a transaction ends that was open when the notify lock had been taken */
#define LOOK_AFTER_LIST  2  /* looks right after it has read which these are, even if there are none */
#define PASS_DUTY        3  /* who has released the locks and can't take more tells the others */
#define RELEASE_FIRST    4  /* and tells them when the locks are free, not before */
#define CLEAR_FIRST      5  /* clears the notifications before it looks, not after */
#define WAITS            6  /* takes the notify lock, however many probes are in the way */
#define SEES_LOCKED      7  /* a due job that was skipped, being locked, is come back for */
#define LIFELINE         8  /* passes the duty of a process that is stuck, and has it or owes to pass it */
#define SUPERVISOR       9  /* passes the duty of a process that was killed, when its sessions have ended */

#define has(part)  (WITHOUT != part)
#define bit(i)     (1 << (i))
#define everyone   (bit(W) - 1)
#define others     (everyone & ~bit(w))

byte jobs, locked, running[W];
byte duty_lock, notify_lock, probes, open;
byte notified, passed;
byte begun;                                /* how many transactions of producers */
byte faults, hit, away;                    /* hit: 1 + whom; away: bit w */
bool dead, dead_duty_lock, dead_notify_lock;           /* a process was killed; its session still has these, */
byte dead_claim, dead_running;             /* its claim is still under way, these jobs are still its */
bool still;

inline probe(notifies) {
  atomic { if :: notify_lock -> notifies = true :: else -> probes++ fi };
  atomic { if :: !notifies -> probes-- :: else fi }
}

inline commit(t, count, notifies) {
  jobs = jobs + count;
  open = open & ~bit(t);
  if :: notifies && count -> notified = everyone :: else fi;
  notifies = false
}

proctype Transaction(byte t) {
  bool notifies;
end_idle:
  atomic {
    !still && begun == t -> begun++; open = open | bit(t);
    if
    :: true
    :: jobs -> jobs--; locked++; goto end_locking
    fi
  };
  probe(notifies);
end_open:
  atomic {
    !still;
    if
    :: commit(t, 0, notifies)                 /* rolls back */
    :: commit(t, 1, notifies)
    :: commit(t, 2, notifies)
    fi;
    goto end
  };
end_locking:
  atomic { !still -> locked--; jobs++; open = open & ~bit(t) };
end:
  false
}

proctype Handlers(byte w) {
end:
  do :: atomic { !still && running[w] -> running[w]-- } od
}

inline clear() {
  atomic { notified = notified & ~bit(w); passed = passed & ~bit(w) }
}

/* Where to go when a claim has been answered. */
inline decide() {
  if
  :: mine && filled -> goto release
  :: mine && !filled && woken -> mute(); goto unmute
  :: mine && !filled && !woken && !unmuted -> goto unmute
  :: mine && !filled && !woken && unmuted -> goto end_asleep
  :: !mine && !filled -> goto try
  :: !mine && filled && owes -> goto pass
  :: !mine && filled && !owes -> filled = false; goto end_busy
  fi
}

inline mute() {
  if :: unmuted -> notify_lock = 0 :: else fi;
  unmuted = false; woken = false;
  listed = false; watched = 0; skipped = false
}

inline let_go() {
  mute(); duty_lock = 0; mine = false; owes = true
}

proctype Worker(byte w) {
  byte got, watched;
  bool mine, unmuted;                      /* has the duty lock, the notify lock */
  bool owes;                               /* has released the duty lock, and told nobody */
  bool filled, skipped;                    /* got all it asked for; less, and there are locked ones */
  bool woken;                              /* by a notification, and will release the notify lock while it looks, or after */
  bool listed;                             /* has read pg_locks since it took the notify lock */
look: {
#if WITHOUT != CLEAR_FIRST
    clear();
#endif
    atomic {
      if :: jobs < S - running[w] -> got = jobs :: else -> got = S - running[w] fi;
      filled = (got == S - running[w]);
      skipped = (unmuted && !filled && locked);
      jobs = jobs - got; locked = locked + got;
      if :: !got && has(CLEAR_FIRST) -> decide() :: else fi
    };
claiming:
    if
    :: atomic {
         locked = locked - got; running[w] = running[w] + got; got = 0;
         if :: has(CLEAR_FIRST) -> decide() :: else fi
       }
    :: atomic { woken -> mute(); goto claiming }
    fi;
#if WITHOUT == CLEAR_FIRST
    clear();
    atomic { decide() };
#endif
release:
#if WITHOUT == RELEASE_FIRST
    atomic { passed = passed | others };
#endif
    atomic { let_go(); owes = has(RELEASE_FIRST) };
pass:
    atomic {
      if :: owes && has(PASS_DUTY) -> passed = passed | others :: else fi;
      owes = false; filled = false
    };
end_busy:
    running[w] < S -> goto look;
try:
    atomic {
      owes = false;
      if :: !duty_lock -> duty_lock = w + 1; mine = true; goto look :: else fi
    };
end_passive:
    atomic { passed & bit(w) -> passed = passed & ~bit(w); goto try };
unmute:
    atomic {
      if
      :: !notify_lock && !probes -> notify_lock = w + 1; unmuted = true; goto look
      :: !has(WAITS) && (notify_lock || probes) -> goto end_asleep
      fi
    };
end_asleep:
    if
    :: atomic { notified & bit(w) -> mute(); goto look }
    :: atomic { notified & bit(w) -> woken = true; goto look }
    :: atomic { notified & bit(w) -> goto look }                /* and keeps the lock */
    :: atomic {
         has(SECOND_LOOK) && !listed -> listed = true; watched = open;
         if :: has(LOOK_AFTER_LIST) -> goto look :: else -> goto end_asleep fi
       }
    :: atomic { watched & ~open -> watched = watched & open; goto look }
    :: atomic { has(SEES_LOCKED) && skipped && (jobs || !locked) -> goto look }
    fi
  } unless { hit == w + 1 };
  if
  :: atomic {                              /* killed; another process takes its place */
       hit = 0; dead = true; dead_claim = got; dead_running = running[w];
       dead_duty_lock = mine; dead_notify_lock = unmuted;
       got = 0; running[w] = 0;
       mine = false; unmuted = false; owes = false; filled = false; woken = false;
       listed = false; watched = 0; skipped = false;
       goto look
     }
  :: atomic {                              /* stuck; a claim under way commits */
       hit = 0; away = away | bit(w);
       locked = locked - got; running[w] = running[w] + got; got = 0; filled = false;
       if :: mine -> let_go() :: else fi
     }
  fi;
  atomic {
    if :: owes && has(LIFELINE) -> passed = passed | others :: else fi;
    owes = false
  };
end_away:
  atomic { !still -> away = away & ~bit(w) };
end_back:
  running[w] < S -> goto look
}

active proctype Fate() {
end:
  do :: atomic { !still && faults < FAULTS && !dead && !hit -> faults++; hit = 1 } od
}

active proctype Supervisor() {
  bool notifies;
end:
  atomic {
    dead;
    if
    :: dead_claim -> locked = locked - dead_claim; jobs = jobs + dead_claim    /* undone */
    :: dead_claim -> locked = locked - dead_claim; dead_running = dead_running + dead_claim
    :: !dead_claim
    fi;
    dead_claim = 0
  };
  do
  :: atomic { dead_duty_lock -> duty_lock = 0; dead_duty_lock = false }
  :: atomic { dead_notify_lock -> notify_lock = 0; dead_notify_lock = false }
  :: atomic { !dead_duty_lock && !dead_notify_lock -> break }
  od;
  if
  :: atomic { dead_running -> open = open | bit(T) };
     probe(notifies);
     atomic { commit(T, dead_running, notifies); dead_running = 0 }
  :: atomic { !dead_running }
  fi;
  atomic {
    if :: has(SUPERVISOR) -> passed = everyone :: else fi;
    dead = false
  };
  goto end
}

init {
  byte i;
  atomic {
    for (i : 0 .. W - 1) { run Worker(i); run Handlers(i) }
    for (i : 0 .. T - 1) { run Transaction(i) }
    i = 0
  }
}

/* If the world can stand still with a job lost, it can as well do so when all else has come to rest. */
active proctype Judge() {
  byte i;
end:
  atomic { jobs && !dead && !probes -> still = true };
  timeout;
  for (i : 0 .. W - 1) { assert(!jobs || running[i] == S || (away & bit(i))) }
}
