import java.sql.Connection;
import java.sql.SQLException;

/**
 * A producer on JDBC: DATABASE_URL=... QUEUE=... java Producer COUNT [PREFIX]
 * Plain inserts, in the caller's own transactions.
 */
public class Producer {
    static final String QUEUE = System.getenv().getOrDefault("QUEUE", "default");

    /** How many were added: none if the key is taken. */
    static int enqueue(Connection connection, String prefix, int number) throws SQLException {
        String sql = "insert into pgwake.jobs (queue, kind, payload, metadata, unique_key)"
            + " values (?, 'conformance.echo', ?::jsonb, ?::jsonb, ?) on conflict do nothing";
        try (var statement = connection.prepareStatement(sql)) {
            statement.setString(1, QUEUE);
            statement.setString(2, "{\"number\": %d}".formatted(number));
            statement.setString(3, "{\"from\": \"java\"}");
            statement.setString(4, prefix + number);
            return statement.executeUpdate();
        }
    }

    public static void main(String[] arguments) throws SQLException {
        int count = Integer.parseInt(arguments[0]);
        String prefix = arguments.length > 1 ? arguments[1] : "java-";
        int inserted = 0;
        try (Connection connection = Database.open()) {
            connection.setAutoCommit(false);
            for (int first = 0; first < count; first += 10) {
                for (int i = first; i < Math.min(first + 10, count); i++) inserted += enqueue(connection, prefix, i);
                connection.commit();
            }
            for (int i = 0; i < 10; i++) enqueue(connection, prefix, count + i);
            connection.rollback(); // none of these
            connection.setAutoCommit(true);
            try (var statement = connection.createStatement()) {
                statement.execute("insert into pgwake.jobs (kind, priority) values ('bad', 1000)");
            } catch (SQLException error) {
                System.out.println("refused " + error.getSQLState());
            }
        }
        System.out.println("inserted " + inserted);
    }
}
