<?php
// A consumer of pgwake in PHP (pdo_pgsql, pcntl): claims one job at a time, extends its lease
// by an alarm while the handler runs, sleeps on duty by LISTEN ("Being woken" in sql/README.md).
// Environment: DATABASE_URL, QUEUE (default), LEASE (seconds, 30). SIGTERM gives a running
// job back. Somebody has to sweep leases that ran out: a pgwake worker, or cron.
declare(strict_types=1);

$stopping = false;

define('QUEUE', getenv('QUEUE') ?: 'default');
define('LEASE', (int) (getenv('LEASE') ?: 30));
define('BEAT', max(1, intdiv(LEASE, 3)));
const POLL = 5; // seconds until the next look at most, should a notification be lost

final class Cut extends Error {} // the handler is cut short: stop, cancel_requested, lease_lost

final class Failure extends Exception
{
    public function __construct(string $message, public ?string $retryIn = null, public bool $retryable = true)
    {
        parent::__construct($message);
    }
}

// Handlers have a connection of their own, if they need one. Signals cut a sleep short.
$echo = function (array $job): array {
    $until = microtime(true) + ($job['payload']['seconds'] ?? 0);
    while (($left = $until - microtime(true)) > 0) {
        usleep((int) ceil($left * 1e6));
    }
    return ['number' => $job['payload']['number'], 'by' => 'php'];
};
$handlers = [
    'conformance.echo' => $echo,
    'conformance.fail_once' => fn (array $job) => $job['attempt'] === 1
        ? throw new Failure('not yet', retryIn: '0 seconds') : $echo($job),
    'conformance.fail' => fn (array $job) => throw new Failure('never', retryable: false),
];

function ask(string $call, mixed ...$arguments): mixed
{
    global $db;
    $statement = $db->prepare("select $call");
    $statement->execute($arguments);
    return $statement->fetchColumn();
}

function notice_stop(): void
{
    global $stopping;
    $stopping = true;
}

// Runs the handler of a job, whose lease is kept meanwhile; returns the call that ends the job.
function handle(array $job): array
{
    global $handlers, $stopping;
    pcntl_signal(SIGTERM, function (): void {
        notice_stop();
        throw new Cut('stop');
    });
    pcntl_signal(SIGALRM, function () use ($job): void {
        $answer = ask('(pgwake.extend_leases(array[?::bigint], array[?::uuid], make_interval(secs => ?)))[1]',
            $job['id'], $job['lease_id'], LEASE);
        $answer === 'extended' ? pcntl_alarm(BEAT) : throw new Cut($answer);
    });
    pcntl_alarm(BEAT);
    try {
        $stopping && throw new Cut('stop');
        $handler = $handlers[$job['kind']] ?? throw new Failure("unknown kind {$job['kind']}");
        $job['payload'] = json_decode($job['payload'], true);
        return ['pgwake.complete_job(?, ?, ?)', json_encode($handler($job), JSON_THROW_ON_ERROR)];
    } catch (Cut $e) {
        throw $e;
    } catch (Throwable $e) {
        return ['pgwake.fail_job(?, ?, ?, retry_in => ?, retryable => ?)',
            $e->getMessage(), $e->retryIn ?? null, ($e->retryable ?? true) ? 't' : 'f'];
    } finally {
        pcntl_alarm(0);
        pcntl_signal(SIGTERM, notice_stop(...));
        pcntl_signal(SIGALRM, SIG_IGN);
    }
}

// Runs a job and tells how it ended; returns that.
function run(array $job): string
{
    $key = [$job['id'], $job['lease_id']];
    try {
        $end = handle($job);
        return ask(array_shift($end), ...$key, ...$end) ?: 'completed';
    } catch (Cut $e) {
        if ($e->getMessage() === 'stop') {
            ask("pgwake.release_jobs(array[?::bigint], array[?::uuid], 'shutdown')", ...$key);
            return 'released';
        }
        return $e->getMessage() === 'cancel_requested' ? ask("pgwake.fail_job(?, ?, 'stopped')", ...$key) : 'lost';
    } catch (PDOException $e) {
        return $e->getCode() === 'PW002' ? 'lost' : throw $e;
    }
}

// Sleeps until a notification for this consumer, or so many seconds.
function doze(float $seconds, bool $on_duty): void
{
    global $db, $stopping;
    $until = microtime(true) + $seconds;
    while (!$stopping && ($left = $until - microtime(true)) > 0) {
        $note = $db->pgsqlGetNotify(PDO::FETCH_NUM, (int) ceil($left * 1000));
        if ($note && $note[2] === QUEUE && ($on_duty || $note[0] === 'pgwake_baton')) {
            return;
        }
    }
}

function work(): void
{
    global $db, $stopping;
    $url = parse_url(getenv('DATABASE_URL'));
    $db = new PDO(
        "pgsql:host={$url['host']};port=" . ($url['port'] ?? 5432) . ';dbname=' . substr($url['path'], 1) . ';' . strtr($url['query'] ?? '', '&', ';'),
        urldecode($url['user']), urldecode($url['pass'] ?? ''), [PDO::PGSQL_ATTR_DISABLE_PREPARES => true]);
    $db->exec('listen pgwake; listen pgwake_baton');
    echo "ready\n";
    $on_duty = false;
    $claim = $db->prepare('select id, lease_id, kind, payload, attempt from pgwake.claim_next_job(?, ?, make_interval(secs => ?))');
    while (!$stopping) {
        while ($db->pgsqlGetNotify()); // forgotten before the claim, never after it
        $claim->execute([QUEUE, 'php-' . getmypid(), LEASE]);
        if ($job = $claim->fetch(PDO::FETCH_ASSOC)) {
            $on_duty && ask('pgwake.unpark(?)', QUEUE);
            $on_duty = false;
            echo "{$job['id']} {$job['kind']} ", run($job), "\n";
        } elseif ($on_duty) {
            // Soon at first: who inserted before it was on duty, and commits now, does not notify.
            doze((float) ask('least(nullif(greatest(extract(epoch from pgwake.next_run_at(?) - now()), 0), 0), ?)', QUEUE, $pause), true);
            $pause = min(2 * $pause, POLL);
        } elseif (ask('pgwake.park(?)', QUEUE)) {
            [$on_duty, $pause] = [true, 0.005]; // and looks once more
        } else {
            doze(POLL, false);
        }
    }
    $on_duty && ask('pgwake.unpark(?)', QUEUE);
}

pcntl_async_signals(true);
pcntl_signal(SIGTERM, notice_stop(...));
while (!$stopping) {
    try {
        work();
    } catch (PDOException $e) {
        fwrite(STDERR, $e->getMessage() . "\n");
        $stopping || sleep(1);
    }
}
