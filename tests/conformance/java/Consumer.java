import java.sql.Connection;
import java.sql.SQLException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
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
    static final ExecutorService handlers = Executors.newSingleThreadExecutor();
    static volatile boolean stopping;

    record Job(long id, String leaseId, String kind, int attempt, String payload) {}

    static Connection connection;
    static boolean onDuty;

    /** Calls a function; the columns of its answer, or null. */
    static String[] row(String call, Object... values) throws SQLException {
        try (var statement = connection.prepareStatement("select * from " + call)) {
            for (int i = 0; i < values.length; i++) statement.setObject(i + 1, values[i]);
            var rows = statement.executeQuery();
            if (!rows.next()) return null;
            var columns = new String[rows.getMetaData().getColumnCount()];
            for (int i = 0; i < columns.length; i++) columns[i] = rows.getString(i + 1);
            return columns;
        }
    }

    static Job claim() throws SQLException {
        String[] row = row("pgwake.claim_next_job(?, ?, ?::interval)", QUEUE, WORKER, LEASE);
        if (row == null) return null;
        return new Job(Long.parseLong(row[0]), row[1], row[3], Integer.parseInt(row[5]), row[4]);
    }

    /** Runs a job in a thread, and keeps its lease meanwhile; says how it ended. */
    static String run(Job job) throws SQLException, InterruptedException {
        var handling = handlers.submit(() -> {
            if (!Handlers.KINDS.containsKey(job.kind)) throw new Exception("unknown kind " + job.kind);
            return Handlers.KINDS.get(job.kind).handle(job);
        });
        while (true) {
            try {
                String result = handling.get((long) (1000 * Double.parseDouble(LEASE) / 3), TimeUnit.MILLISECONDS);
                row("pgwake.complete_job(?, ?::uuid, ?::jsonb)", job.id, job.leaseId, result);
                return "completed";
            } catch (TimeoutException stillRunning) {
                row("pgwake.extend_leases(array[?::bigint], array[?::uuid], ?::interval)", job.id, job.leaseId, LEASE);
            } catch (ExecutionException error) {
                return fail(job, error.getCause());
            } catch (SQLException refused) { // such as a result that is too large
                return fail(job, refused);
            }
        }
    }

    static String fail(Job job, Throwable error) throws SQLException {
        var how = error instanceof Handlers.Failure failure ? failure : new Handlers.Failure("", null, true);
        try {
            return row("pgwake.fail_job(?, ?::uuid, ?, retry_in => ?::interval, retryable => ?)",
                job.id, job.leaseId, error.getMessage(), how.retryIn, how.retryable)[0];
        } catch (SQLException refused) {
            if ("PW002".equals(refused.getSQLState())) return "lost"; // somebody else has it
            throw refused;
        }
    }

    static void work() throws SQLException, InterruptedException {
        connection.createStatement().execute("listen pgwake; listen pgwake_baton");
        System.out.println("ready");
        onDuty = false;
        int pause = SOON;
        while (!stopping) {
            isNamed(-1); // forgets what has been heard: before each claim, never after it
            Job job = claim();
            if (onDuty && job != null) onDuty = !row("pgwake.unpark(?)", QUEUE)[0].equals("t");
            if (job != null) {
                System.out.println(job.id + " " + job.kind + " " + run(job));
            } else if (!onDuty && (onDuty = row("pgwake.park(?)", QUEUE)[0].equals("t"))) {
                pause = SOON; // and looks once more
            } else {
                String due = row("extract(epoch from pgwake.next_run_at(?) - now())", QUEUE)[0];
                int untilDue = due == null ? 0 : (int) (1000 * Double.parseDouble(due));
                doze(!onDuty ? POLL : untilDue > 0 ? Math.min(untilDue, pause) : pause);
                pause = Math.min(2 * pause, POLL);
            }
        }
        if (onDuty) row("pgwake.unpark(?)", QUEUE);
    }

    static void doze(int most) throws SQLException { // until the queue is named
        for (int left = most; left > 0 && !stopping; left -= LOOK) {
            if (isNamed(Math.min(left, LOOK))) return;
        }
    }

    /** Whether the queue is named within so many ms; -1: whether it has been. */
    static boolean isNamed(int within) throws SQLException {
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
            try (var opened = Database.open()) {
                connection = opened;
                work();
            } catch (SQLException error) {
                System.err.println(error.getMessage());
                Thread.sleep(1000);
            }
        }
    }
}
