import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.postgresql.PGConnection;

/**
 * Runs a contract through JDBC: DATABASE_URL=... java Contract FILE
 * The format is in ../README.md. Exit code 0: each step went as expected; 1: one did not.
 */
public class Contract {
    static final Pattern NAME = Pattern.compile("\\{(\\w+)\\}");
    static final Pattern DIRECTIVE = Pattern.compile("(?m)^-- (in|expect|error|keep|hears): (.*)$");
    static final Map<String, Connection> sessions = new HashMap<>();
    static final Map<String, String> values = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        String[] steps = Files.readString(Path.of(arguments[0])).split("\n-- step: ");
        for (int i = 1; i < steps.length; i++) {
            String difference = run(steps[i]);
            if (difference != null) {
                System.out.println(difference);
                System.exit(1);
            }
        }
        System.out.println(steps.length - 1 + " steps");
    }

    static String run(String step) throws SQLException {
        String title = step.substring(0, step.indexOf('\n'));
        String rest = step.substring(title.length());
        Map<String, String> wanted = new HashMap<>();
        DIRECTIVE.matcher(rest).results().forEach(found -> wanted.put(found.group(1), found.group(2)));
        String text = rest.replaceAll("(?m)^--.*$", "");
        List<String> names = NAME.matcher(text).results().map(found -> found.group(1)).toList();
        String name = wanted.getOrDefault("in", "a");
        if (!sessions.containsKey(name)) sessions.put(name, Database.open());
        Connection session = sessions.get(name);

        Map<String, String> got = new HashMap<>();
        try (var statement = session.prepareStatement(NAME.matcher(text).replaceAll("?"))) {
            for (int i = 0; i < names.size(); i++) statement.setString(i + 1, values.get(names.get(i)));
            String answer = "(no row)";
            if (statement.execute()) {
                var rows = statement.getResultSet();
                if (rows.next()) answer = rows.getString(1);
            }
            got.put("expect", answer == null ? "(null)" : answer.isEmpty() ? "(empty)" : answer);
            if (wanted.containsKey("keep")) {
                String[] kept = answer == null ? new String[] {null} : answer.split("\n");
                String[] keep = wanted.get("keep").split(" ");
                for (int i = 0; i < keep.length; i++) values.put(keep[i], kept[i]);
            }
        } catch (SQLException error) {
            got.put("error", error.getSQLState());
        }
        return difference(title, session, wanted, got);
    }

    static String difference(
            String title, Connection session, Map<String, String> wanted, Map<String, String> got) throws SQLException {
        if (wanted.containsKey("hears")) {
            List<String> notes = new ArrayList<>();
            for (var note : session.unwrap(PGConnection.class).getNotifications()) {
                notes.add(note.getName() + " " + note.getParameter());
            }
            got.put("hears", notes.isEmpty() ? "(nothing)" : String.join(", ", notes));
        }
        for (String word : List.of("error", "expect", "hears")) {
            String expected = wanted.get(word);
            if (expected != null) {
                expected = NAME.matcher(expected).replaceAll(found -> Matcher.quoteReplacement(values.get(found.group(1))));
            }
            if (expected == null ? word.equals("error") && got.get(word) != null : !expected.equals(got.get(word))) {
                return "step \"%s\": expected %s %s, got %s".formatted(title, word, expected, got.get(word));
            }
        }
        return null;
    }
}
