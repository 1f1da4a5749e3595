import java.sql.Connection;
import java.sql.SQLException;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.postgresql.PGConnection;

/**
 * A consumer on JDBC: DATABASE_URL=... QUEUE=... java Consumer, until SIGTERM.
 * One job at a time. Goes on duty, as "Being woken" in sql/README.md says.
 */
public class Consumer {
    static final String QUEUE = System.getenv().getOrDefault("QUEUE", "default");
    static final int LEASE = Integer.parseInt(System.getenv().getOrDefault("LEASE", "30")); // seconds
    static final String WORKER = "java-" + ProcessHandle.current().pid();
    static final int FIRST = 5, POLL = 5000, LOOK = 200; // ms; LOOK: how soon it sees that it is to stop
    static final ExecutorService handlers = Executors.newCachedThreadPool();
    static volatile boolean stopping;

    /** The payload's fields are read by SQL, so that no library for JSON is needed. */
    record Job(long id, String leaseId, String kind, int attempt, String number, double seconds) {}

    /** Says when to try again (null: by the policy), or never. */
    static class Failure extends Exception {
        final String retryIn;
        final boolean retryable;

        Failure(String message, String retryIn, boolean retryable) {
            super(message);
            this.retryIn = retryIn;
            this.retryable = retryable;
        }
    }

    interface Handler {
        String handle(Job job) throws Exception;
    }

    static final Map<String, Handler> KINDS = Map.of(
        "conformance.echo", Consumer::echo,
        "conformance.fail_once", job -> {
            if (job.attempt == 1) throw new Failure("not yet", "0 seconds", true);
            return echo(job);
        },
        "conformance.fail", job -> {
            throw new Failure("never", null, false);
        });

    static String echo(Job job) throws InterruptedException {
        Thread.sleep((long) (1000 * job.seconds));
        return "{\"number\": %s, \"by\": \"java\"}".formatted(job.number);
    }

    final Connection connection = Database.open();
    boolean onDuty;

    Consumer() throws SQLException {}

    /** Runs a statement; its first value. */
    String ask(String sql, Object... values) throws SQLException {
        try (var statement = connection.prepareStatement(sql)) {
            for (int i = 0; i < values.length; i++) statement.setObject(i + 1, values[i]);
            var rows = statement.executeQuery();
            return rows.next() ? rows.getString(1) : null;
        }
    }

    Job claim() throws SQLException {
        String sql = "select id, lease_id, kind, attempt, payload ->> 'number', payload ->> 'seconds'"
            + " from pgwake.claim_next_job(?, ?, ?::interval)";
        try (var statement = connection.prepareStatement(sql)) {
            statement.setString(1, QUEUE);
            statement.setString(2, WORKER);
            statement.setString(3, LEASE + " seconds");
            var row = statement.executeQuery();
            return !row.next() ? null : new Job(
                row.getLong(1), row.getString(2), row.getString(3), row.getInt(4), row.getString(5), row.getDouble(6));
        }
    }

    /** Runs a job; says how it ended. */
    String run(Job job) throws SQLException, InterruptedException {
        Future<String> handling = handlers.submit(() -> {
            if (!KINDS.containsKey(job.kind)) throw new Exception("unknown kind " + job.kind);
            return KINDS.get(job.kind).handle(job);
        });
        try {
            return end(job, handling);
        } catch (SQLException error) {
            if ("PW002".equals(error.getSQLState())) return "lost";
            throw error;
        } finally {
            handling.cancel(true);
        }
    }

    String end(Job job, Future<String> handling) throws SQLException, InterruptedException {
        long beatAt = System.nanoTime() + LEASE * 1_000_000_000L / 3;
        while (true) {
            try {
                String result = handling.get(LOOK, TimeUnit.MILLISECONDS);
                ask("select pgwake.complete_job(?, ?::uuid, ?::jsonb)", job.id, job.leaseId, result);
                return "completed";
            } catch (ExecutionException error) {
                Throwable cause = error.getCause();
                boolean isOurs = cause instanceof Failure;
                return ask("select pgwake.fail_job(?, ?::uuid, ?, retry_in => ?::interval, retryable => ?)",
                    job.id, job.leaseId, cause.getMessage(),
                    isOurs ? ((Failure) cause).retryIn : null, !isOurs || ((Failure) cause).retryable);
            } catch (TimeoutException stillRunning) {
                if (stopping) {
                    return ask("select (pgwake.release_jobs(array[?::bigint], array[?::uuid], 'shutdown'))[1]",
                        job.id, job.leaseId);
                }
                if (System.nanoTime() < beatAt) continue;
                beatAt += LEASE * 1_000_000_000L / 3;
                String kept = ask("select (pgwake.extend_leases(array[?::bigint], array[?::uuid], ?::interval))[1]",
                    job.id, job.leaseId, LEASE + " seconds");
                if (kept.equals("lease_lost")) return "lost";
                if (kept.equals("cancel_requested")) {
                    handling.cancel(true);
                    return ask("select pgwake.fail_job(?, ?::uuid, 'cancelled')", job.id, job.leaseId);
                }
            }
        }
    }

    /** Works until it is to stop. */
    void work() throws SQLException, InterruptedException {
        int pause = FIRST;
        while (!stopping) {
            isNamed(-1); // forget, before each claim
            Job job = claim();
            if (job != null) {
                unpark();
                System.out.println(job.id + " " + job.kind + " " + run(job));
                pause = FIRST;
            } else if (!onDuty && (onDuty = ask("select pgwake.park(?)", QUEUE).equals("t"))) {
                pause = FIRST; // and look once more
            } else {
                sleep(pause);
                pause = Math.min(2 * pause, POLL);
            }
        }
        unpark();
    }

    void unpark() throws SQLException {
        if (onDuty) ask("select pgwake.unpark(?)", QUEUE);
        onDuty = false;
    }

    void sleep(int pause) throws SQLException {
        int due = (int) (1000 * Double.parseDouble(
            ask("select coalesce(extract(epoch from least(pgwake.next_run_at(?), now() + '1 hour') - now()), 0)", QUEUE)));
        long most = !onDuty ? POLL : due > 0 ? Math.min(due, pause) : pause;
        long until = System.nanoTime() + most * 1_000_000;
        for (long left = most; left > 0 && !stopping; left = (until - System.nanoTime()) / 1_000_000) {
            if (isNamed((int) Math.min(left, LOOK))) return;
        }
    }

    /** Whether the queue is named within so many ms; -1: whether it has been. */
    boolean isNamed(int within) throws SQLException {
        boolean isNamed = false;
        for (var note : connection.unwrap(PGConnection.class).getNotifications(within)) {
            isNamed |= note.getParameter().equals(QUEUE) && (onDuty || note.getName().equals("pgwake_baton"));
        }
        return isNamed;
    }

    public static void main(String[] arguments) throws InterruptedException {
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stopping = true;
            try {
                main.join();
            } catch (InterruptedException impossible) {
            }
            Runtime.getRuntime().halt(0);
        }));
        while (!stopping) {
            try {
                var consumer = new Consumer();
                try (consumer.connection; var statement = consumer.connection.createStatement()) {
                    statement.execute("listen pgwake; listen pgwake_baton");
                    System.out.println("ready");
                    consumer.work();
                }
            } catch (SQLException error) {
                System.err.println(error.getMessage());
                Thread.sleep(1000);
            }
        }
    }
}
