import java.sql.Connection;
import java.sql.SQLException;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** A job, as long as its lease is kept. */
record Job(long id, String leaseId, String kind, int attempt, String payload) {
    static final ExecutorService handlers = Executors.newSingleThreadExecutor();

    static Job of(Map<String, String> row) {
        return new Job(Long.parseLong(row.get("id")), row.get("lease_id"), row.get("kind"),
            Integer.parseInt(row.get("attempt")), row.get("payload"));
    }

    /** Runs it in a thread, and keeps its lease meanwhile; says how it ended. */
    String run(Connection connection, String lease) throws SQLException, InterruptedException {
        var handling = handlers.submit(() -> Handlers.of(kind).handle(this));
        long beat = (long) (1000 * Double.parseDouble(lease) / 3);
        while (true) {
            try {
                String result = handling.get(beat, TimeUnit.MILLISECONDS);
                Database.row(connection, "pgwake.complete_job(?, ?::uuid, ?::jsonb)", id, leaseId, result);
                return "completed";
            } catch (TimeoutException stillRunning) {
                String extend = "pgwake.extend_leases(array[?::bigint], array[?::uuid], ?::interval)";
                Database.row(connection, extend, id, leaseId, lease);
            } catch (ExecutionException error) {
                return fail(connection, error.getCause());
            } catch (SQLException refused) { // such as a result that is too large
                return fail(connection, refused);
            }
        }
    }

    String fail(Connection connection, Throwable error) throws SQLException {
        var how = error instanceof Handlers.Failure failure ? failure : new Handlers.Failure("", null, true);
        String fail = "pgwake.fail_job(?, ?::uuid, ?, retry_in => ?::interval, retryable => ?)";
        try {
            return Database.row(connection, fail, id, leaseId, error.getMessage(), how.retryIn, how.retryable)
                .get("fail_job");
        } catch (SQLException refused) {
            if ("PW002".equals(refused.getSQLState())) return "lost"; // somebody else has it
            throw refused;
        }
    }
}
