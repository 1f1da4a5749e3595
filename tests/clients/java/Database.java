import java.net.URI;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.util.HashMap;
import java.util.Map;

/**
 * The database that DATABASE_URL names in the form that all but JDBC know. A statement that
 * has no answer within 30 s is given up with its connection.
 */
class Database {
    static Connection open() throws SQLException {
        URI url = URI.create(System.getenv("DATABASE_URL"));
        String[] user = url.getUserInfo().split(":", 2);
        return DriverManager.getConnection(
            "jdbc:postgresql://%s:%d%s?socketTimeout=30".formatted(url.getHost(), url.getPort(), url.getPath()),
            user[0], user.length > 1 ? user[1] : null);
    }

    /** The first row of what a function answers, by name. */
    static Map<String, String> row(Connection connection, String call, Object... values) throws SQLException {
        try (var statement = connection.prepareStatement("select * from " + call)) {
            for (int i = 0; i < values.length; i++) statement.setObject(i + 1, values[i]);
            var rows = statement.executeQuery();
            var row = new HashMap<String, String>();
            for (int i = rows.next() ? rows.getMetaData().getColumnCount() : 0; i > 0; i--) {
                row.put(rows.getMetaData().getColumnLabel(i), rows.getString(i));
            }
            return row;
        }
    }
}
