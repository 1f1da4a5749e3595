import java.sql.Connection;
import java.sql.SQLException;
import org.postgresql.PGConnection;

/**
 * A consumer on JDBC: DATABASE_URL=... QUEUE=... LEASE=... java Consumer, until SIGTERM. Claims one job at a time,
 * keeps its lease while it runs, and is on duty ("Being woken" in sql/CONSUMERS.md) between.
 */
public class Consumer {
    static final String NAME = "java-" + ProcessHandle.current().pid();
    static final String QUEUE = System.getenv().getOrDefault("QUEUE", "default");
    static final String LEASE = System.getenv().getOrDefault("LEASE", "30"); // seconds
    static final int LOOK = 200; // ms until it sees that it is to stop
    static volatile boolean stopping;

    static void work(Connection connection) throws SQLException, InterruptedException {
        connection.createStatement().execute("listen pgwake; listen pgwake_duty");
        System.out.println("ready");
        boolean onDuty = false;
        while (!stopping) {
            isNamed(connection, -1, onDuty); // forgets what has been heard: before each claim, never after it
            var row = Database.row(connection, "pgwake.claim_or_wait(?, ?, ?::interval)", QUEUE, NAME, LEASE);
            onDuty = row.get("is_on_duty").equals("t");
            if (row.get("id") != null) {
                System.out.println(row.get("id") + " " + row.get("kind") + " " + Job.of(row).run(connection, LEASE));
            } else {
                int left = (int) Math.ceil(1000 * Double.parseDouble(row.get("wait_seconds")));
                while (left > 0 && !stopping && !isNamed(connection, Math.min(left, LOOK), onDuty)) left -= LOOK;
            }
        }
        if (onDuty) Database.row(connection, "pgwake.unpark(?)", QUEUE);
    }

    /** Whether the queue is named within so many ms; -1: whether it has been. */
    static boolean isNamed(Connection connection, int within, boolean onDuty) throws SQLException {
        for (var note : connection.unwrap(PGConnection.class).getNotifications(within)) {
            if (note.getParameter().equals(QUEUE) && (onDuty || note.getName().equals("pgwake_duty"))) return true;
        }
        return false;
    }

    public static void main(String[] arguments) throws InterruptedException {
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stopping = true;
            try {
                main.join();
            } catch (InterruptedException impossible) {}
            Runtime.getRuntime().halt(0);
        }));
        while (!stopping) {
            try (var connection = Database.open()) {
                work(connection);
            } catch (SQLException error) {
                System.err.println(error.getMessage());
                Thread.sleep(1000);
            }
        }
    }
}
