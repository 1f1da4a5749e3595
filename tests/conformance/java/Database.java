import java.net.URI;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;

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
}
