import java.sql.Connection;
import java.sql.SQLException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.postgresql.PGConnection;

/**
 * A consumer on JDBC: DATABASE_URL=... QUEUE=... LEASE=... java Consumer, until SIGTERM. Claims one job at a time,
 * keeps its lease while it runs, and is on duty ("Being woken" in sql/README.md) between.
 */
public class Consumer {
    static final String QUEUE = System.getenv().getOrDefault("QUEUE", "default");
    static final String LEASE = System.getenv().getOrDefault("LEASE", "30"); // seconds
    static final String WORKER = "java-" + ProcessHandle.current().pid();
    static final int SOON = 5, POLL = 5000; // ms until it looks again: at first, and at most
    static final int LOOK = 200; // ms until it sees that it is to stop
    static final ExecutorService handlers = Executors.newCachedThreadPool();
    static volatile boolean stopping;

    record Job(long id, String leaseId, String kind, int attempt, String payload) {}

    final Connection connection = Database.open();
    boolean onDuty;

    Consumer() throws SQLException {}

    /** Calls a function; its answer. */
    String ask(String call, Object... values) throws SQLException {
        try (var statement = connection.prepareStatement("select " + call)) {
            for (int i = 0; i < values.length; i++) statement.setObject(i + 1, values[i]);
            var rows = statement.executeQuery();
            rows.next();
            return rows.getString(1);
        }
    }

    Job claim() throws SQLException {
        String sql = "select id, lease_id, kind, attempt, payload from pgwake.claim_next_job(?, ?, ?::interval)";
        try (var statement = connection.prepareStatement(sql)) {
            statement.setString(1, QUEUE);
            statement.setString(2, WORKER);
            statement.setString(3, LEASE);
            var row = statement.executeQuery();
            if (!row.next()) return null;
            return new Job(row.getLong(1), row.getString(2), row.getString(3), row.getInt(4), row.getString(5));
        }
    }

    /** Runs a job in a thread, and keeps its lease meanwhile; says how it ended. */
    String run(Job job) throws SQLException, InterruptedException {
        var handling = handlers.submit(() -> {
            if (!Handlers.KINDS.containsKey(job.kind)) throw new Exception("unknown kind " + job.kind);
            return Handlers.KINDS.get(job.kind).handle(job);
        });
        try {
            String result = wait(handling, job);
            ask("pgwake.complete_job(?, ?::uuid, ?::jsonb)", job.id, job.leaseId, result);
            return "completed";
        } catch (ExecutionException error) {
            return fail(job, error.getCause());
        } catch (SQLException refused) { // such as a result that is too large
            return fail(job, refused);
        } finally {
            handling.cancel(true);
        }
    }

    String wait(Future<String> handling, Job job) throws SQLException, InterruptedException, ExecutionException {
        while (true) {
            try {
                return handling.get((long) (1000 * Double.parseDouble(LEASE) / 3), TimeUnit.MILLISECONDS);
            } catch (TimeoutException stillRunning) {
                ask("pgwake.extend_leases(array[?::bigint], array[?::uuid], ?::interval)", job.id, job.leaseId, LEASE);
            }
        }
    }

    String fail(Job job, Throwable error) throws SQLException {
        var how = error instanceof Handlers.Failure failure ? failure : new Handlers.Failure("", null, true);
        try {
            return ask("pgwake.fail_job(?, ?::uuid, ?, retry_in => ?::interval, retryable => ?)",
                job.id, job.leaseId, error.getMessage(), how.retryIn, how.retryable);
        } catch (SQLException refused) {
            if ("PW002".equals(refused.getSQLState())) return "lost"; // somebody else has it
            throw refused;
        }
    }

    void work() throws SQLException, InterruptedException {
        int pause = SOON;
        while (!stopping) {
            isNamed(-1); // forgets what has been heard: before each claim, never after it
            Job job = claim();
            if (onDuty && job != null) onDuty = !ask("pgwake.unpark(?)", QUEUE).equals("t");
            if (job != null) {
                System.out.println(job.id + " " + job.kind + " " + run(job));
            } else if (!onDuty && (onDuty = ask("pgwake.park(?)", QUEUE).equals("t"))) {
                pause = SOON; // and looks once more
            } else {
                doze(onDuty ? pause : POLL);
                pause = Math.min(2 * pause, POLL);
            }
        }
        if (onDuty) ask("pgwake.unpark(?)", QUEUE);
    }

    /** Sleeps until the queue is named, or a job is due if that is ours to watch. */
    void doze(int most) throws SQLException {
        String due = ask("least(extract(epoch from pgwake.next_run_at(?) - now()), 3600)", QUEUE);
        int left = (int) (1000 * Double.parseDouble(due));
        if (!onDuty || left <= 0) left = most;
        for (left = Math.min(left, most); left > 0 && !stopping; left -= LOOK) {
            if (isNamed(Math.min(left, LOOK))) return;
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
