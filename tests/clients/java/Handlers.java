import java.util.Map;
import java.util.regex.Pattern;

/**
 * What becomes of a job of each kind: yours go here. A handler returns the result as JSON. What it throws fails
 * the attempt; a Failure says when to try again (an interval; null: by the policy), or never.
 */
class Handlers {
    interface Handler {
        String handle(Job job) throws Exception;
    }

    static class Failure extends Exception {
        final String retryIn;
        final boolean retryable;

        Failure(String message, String retryIn, boolean retryable) {
            super(message);
            this.retryIn = retryIn;
            this.retryable = retryable;
        }
    }

    static final Map<String, Handler> KINDS = Map.of(
        "conformance.echo", Handlers::echo,
        "conformance.fail_once", job -> {
            if (job.attempt() == 1) throw new Failure("not yet", "0 seconds", true);
            return echo(job);
        },
        "conformance.fail", job -> {
            echo(job);
            throw new Failure("never", null, false);
        });

    static Handler of(String kind) throws Exception {
        if (!KINDS.containsKey(kind)) throw new Exception("unknown kind " + kind);
        return KINDS.get(kind);
    }

    static String echo(Job job) throws InterruptedException {
        Thread.sleep((long) (1000 * Double.parseDouble(field(job, "seconds"))));
        return "{\"number\": %s, \"by\": \"java\"}".formatted(field(job, "number"));
    }

    /** A number of the payload, or 0; an application has a library for that. */
    static String field(Job job, String name) {
        var field = Pattern.compile("\"" + name + "\": ([0-9.]+)").matcher(job.payload());
        return field.find() ? field.group(1) : "0";
    }
}
