/* The bell: no lost wake-up, checked exhaustively.
 *
 * One queue; W worker processes of S slots; T transactions of producers; FAULTS processes that are killed or get stuck.
 * At any moment the outside world may stand still for ever (`still`): no handler returns, no transaction begins or ends.
 * Then the workers come to rest, and no job that could be claimed may be left while one of them has a free slot. There
 * are no polls and no timers here: what is found is found by notifications and second looks alone.
 *
 * in the model          in PostgreSQL
 * jobs                  committed pending jobs that no transaction has locked
 * locked                those that one has locked: a claim skips them, but sees that they are there
 * running[w]            jobs that worker w has claimed
 * bell                  0, or 1 + the worker whose listener session has the exclusive advisory lock
 * probes                momentary shared locks on it
 * open                  bit t: transaction t has RowExclusiveLock on pgwake.jobs or jobs_live, in pg_locks
 * rung, passed          bit w: worker w was sent a ring, a baton, since its last look. The commit sends them; that they
 *                       arrive later only means a look more
 * Transaction           begin; insert (lock, then the trigger's probe, a lock and an unlock); commit or rollback. Or: a job is
 *                       locked, as by cancel_job, and let go by rollback. No worker is told
 * Worker                each atomic is one statement on the server, and what the process makes of the answer
 *   look                clears the notifications, then claims: the rows get locked, and later the claim commits
 *   try                 pg_try_advisory_lock; when that fails, pg_locks: has anybody the exclusive lock?
 *   end_asleep          sleeps with the bell
 *   end_passive         sleeps without
 *   end_busy            all slots are taken
 *   end_away            blocked, draining, or cut off: whoever sees to that (the lifeline) lets go of the bell for it
 * Supervisor            the server ends a killed process's sessions, then its jobs are given back, then the baton is passed,
 *                       all this at any time before, during and after the restart
 *
 * Without loss of generality: transactions begin in the order of their numbers, and faults befall worker 0.
 *
 *   spin -a -DW=2 bell.pml && cc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c && ./pan -m100000
 *
 * WITHOUT=BATON, or another of these, leaves a part of the protocol out, and a job is lost. README.md says more.
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

#define SECOND_LOOK      1  /* looks again when a transaction ends that was open when the bell was taken */
#define LOOK_AFTER_LIST  2  /* looks once more right after it has read which these are */
#define BATON            3  /* tells the others when it has given up the bell and can't take more */
#define CLEAR_FIRST      4  /* clears the notifications before it looks, not after */
#define DOUBT            5  /* a failed try may have been a probe */
#define SEES_LOCKED      6  /* a due job that was skipped since it is locked is waited for */
#define LIFELINE         7  /* passes the baton of a process that is stuck */
#define SUPERVISOR       8  /* passes the baton of a process that was killed, once its sessions are gone */

#define has(part)  (WITHOUT != part)
#define bit(i)     (1 << (i))
#define everyone   (bit(W) - 1)
#define others     (everyone & ~bit(w))

byte jobs, locked, running[W];
byte bell, probes, open;
byte rung, passed;
byte begun;                                    /* transactions of producers */
byte faults, hit, away;                        /* hit: 1 + whom; away: bit w */
bool dead, dead_bell;                          /* a killed process, */
byte dead_claim, dead_running;                 /* and what was its */
bool still;

inline probe(rings) {
  atomic { if :: bell -> rings = true :: else -> probes++ fi };
  atomic { if :: !rings -> probes-- :: else fi }
}

inline commit(t, count, rings) {
  jobs = jobs + count;
  open = open & ~bit(t);
  if :: rings && count -> rung = everyone :: else fi;
  rings = false
}

proctype Transaction(byte t) {
  bool rings;
end_idle:
  atomic {
    !still && begun == t -> begun++; open = open | bit(t);
    if
    :: true
    :: jobs -> jobs--; locked++; goto end_hiding
    fi
  };
  probe(rings);
end_open:
  atomic {
    !still;
    if
    :: commit(t, 0, rings)                     /* rolls back */
    :: commit(t, 1, rings)
    :: commit(t, 2, rings)
    fi;
    goto end
  };
end_hiding:
  atomic { !still -> locked--; jobs++; open = open & ~bit(t) };
end:
  false
}

proctype Handlers(byte w) {
end:
  do :: atomic { !still && running[w] -> running[w]-- } od
}

inline clear() {
  atomic { rung = rung & ~bit(w); passed = passed & ~bit(w) }
}

/* What to do next, when a look has been answered. */
inline decide() {
  if
  :: mine && (filled || woken) -> goto release
  :: mine && !filled && !woken -> goto end_asleep
  :: !mine && !filled -> goto try
  :: !mine && filled && owes -> goto pass
  :: !mine && filled && !owes -> filled = false; goto end_busy
  fi
}

inline forget() {
  mine = false; woken = false; listed = false; skipped = false; watched = 0
}

proctype Worker(byte w) {
  byte got, watched;
  bool mine, owes, filled, woken, listed, skipped;
look:
  {
#if WITHOUT != CLEAR_FIRST
    clear();
#endif
    atomic {
      if :: jobs < S - running[w] -> got = jobs :: else -> got = S - running[w] fi;
      filled = (got == S - running[w]);
      skipped = (mine && !filled && locked);
      jobs = jobs - got; locked = locked + got;
#if WITHOUT != CLEAR_FIRST
      if :: !got -> decide() :: else fi
#endif
    };
    atomic {
      locked = locked - got; running[w] = running[w] + got; got = 0;
#if WITHOUT != CLEAR_FIRST
      decide()
#endif
    };
#if WITHOUT == CLEAR_FIRST
    clear();
    atomic { decide() };
#endif
release:
    atomic {
      bell = 0; forget(); owes = true;
      if :: filled -> goto pass :: else -> goto try fi
    };
pass:
    atomic {
      if :: has(BATON) -> passed = passed | others :: else fi;
      owes = false; filled = false
    };
end_busy:
    running[w] < S -> goto look;
try:
    atomic {
      if :: !bell && !probes -> bell = w + 1; mine = true; owes = false; goto look :: else fi
    };
    atomic {
      if :: bell || !has(DOUBT) -> owes = false :: else -> goto try fi
    };
end_passive:
    atomic { passed & bit(w) -> passed = passed & ~bit(w); goto try };
end_asleep:
    if
    :: atomic { rung & bit(w) -> bell = 0; forget(); owes = true; goto look }
    :: atomic { rung & bit(w) -> woken = true; goto look }  /* and releases it later */
    :: atomic {
         has(SECOND_LOOK) && !listed -> listed = true; watched = open;
         if :: has(LOOK_AFTER_LIST) -> goto look :: else -> goto end_asleep fi
       }
    :: atomic { watched & ~open -> watched = watched & open; goto look }
    :: atomic { has(SEES_LOCKED) && skipped && (jobs || !locked) -> goto look }
    fi
  } unless { hit == w + 1 };
  if
  :: atomic {                                  /* killed; restarted at once */
       hit = 0; dead = true; dead_bell = mine; dead_claim = got; dead_running = running[w];
       running[w] = 0; got = 0; filled = false; owes = false; forget()
     }
  :: atomic {                                  /* stuck; a claim under way commits */
       hit = 0; away = away | bit(w);
       running[w] = running[w] + got; locked = locked - got; got = 0; filled = false;
       if :: mine -> bell = 0; owes = true :: else fi;
       forget()
     };
     atomic {
       if :: owes && has(LIFELINE) -> passed = passed | others :: else fi;
       owes = false
     };
end_away:
     atomic { !still -> away = away & ~bit(w) };
end_full:
     running[w] < S
  fi;
  goto look
}

active proctype Fate() {
end:
  do :: atomic { !still && faults < FAULTS && !dead && !hit -> faults++; hit = 1 } od
}

active proctype Supervisor() {
  bool rings;
end:
  atomic {
    dead;
    if
    :: dead_claim -> locked = locked - dead_claim; jobs = jobs + dead_claim      /* undone */
    :: dead_claim -> locked = locked - dead_claim; dead_running = dead_running + dead_claim
    :: !dead_claim
    fi;
    dead_claim = 0
  };
  if :: atomic { dead_bell -> bell = 0; dead_bell = false } :: atomic { !dead_bell } fi;
  if
  :: atomic { dead_running -> open = open | bit(T) };
     probe(rings);
     atomic { commit(T, dead_running, rings); dead_running = 0 }
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

active proctype Judge() {
  byte i;
end:
  atomic { jobs && !dead && !probes -> still = true };
  timeout;
  for (i : 0 .. W - 1) { assert(!jobs || running[i] == S || (away & bit(i))) }
}
