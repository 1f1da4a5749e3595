<?php
// A consumer on pdo_pgsql and pcntl: DATABASE_URL=... QUEUE=... LEASE=... php consumer.php, until SIGTERM.
// Claims one job at a time, keeps its lease by an alarm, and is on duty ("Being woken" in sql/README.md) between.
declare(strict_types=1);
require __DIR__ . '/connect.php';
$handlers = require __DIR__ . '/handlers.php';

[$queue, $lease, $poll] = [getenv('QUEUE') ?: 'default', (int) (getenv('LEASE') ?: 30), 5]; // seconds
define('BEAT', max(1, intdiv($lease, 3)));
$stopping = false;
pcntl_async_signals(true);
pcntl_signal(SIGTERM, function () use (&$stopping) { $stopping = true; });

function row(string $call, mixed ...$values): array|false
{
    $statement = $GLOBALS['db']->prepare("select * from $call");
    $statement->execute($values);
    return $statement->fetch(PDO::FETCH_BOTH);
}

function run(array $job): string // says how it ended
{
    [$id, $lease_id] = $job;
    pcntl_signal(SIGALRM, function () use ($id, $lease_id) {
        pcntl_alarm(BEAT);
        row('pgwake.extend_leases(array[?::bigint], array[?::uuid], ?)', $id, $lease_id, $GLOBALS['lease']);
    });
    pcntl_alarm(BEAT);
    try {
        $handle = $GLOBALS['handlers'][$job['kind']] ?? throw new Exception("unknown kind {$job['kind']}");
        $result = json_encode($handle(json_decode($job['payload'], true), $job), JSON_THROW_ON_ERROR);
        row('pgwake.complete_job(?, ?, ?)', $id, $lease_id, $result);
        return 'completed';
    } catch (Throwable $e) {
        $how = [$e->getMessage(), $e->retryIn ?? null, ($e->retryable ?? true) ? 't' : 'f'];
        try {
            return row('pgwake.fail_job(?, ?, ?, retry_in => ?, retryable => ?)', $id, $lease_id, ...$how)[0];
        } catch (PDOException $refused) {
            return $refused->getCode() === 'PW002' ? 'lost' : throw $refused; // somebody else has it
        }
    } finally {
        pcntl_alarm(0);
    }
}

function doze(float $seconds, bool $on_duty): void // until the queue is named
{
    $until = microtime(true) + $seconds;
    while (!$GLOBALS['stopping'] && ($left = $until - microtime(true)) > 0) {
        $note = $GLOBALS['db']->pgsqlGetNotify(PDO::FETCH_ASSOC, (int) ceil(1000 * $left));
        if ($note && $note['payload'] === $GLOBALS['queue'] && ($on_duty || $note['message'] === 'pgwake_baton')) {
            return;
        }
    }
}

while (!$stopping) {
    try {
        $db = connect();
        $db->exec('listen pgwake; listen pgwake_baton');
        echo "ready\n";
        $on_duty = false;
        while (!$stopping) {
            while ($db->pgsqlGetNotify()); // forgets what has been heard: before each claim, never after it
            $job = row('pgwake.claim_next_job(?, ?, ?)', $queue, 'php-' . getmypid(), $lease);
            $on_duty && $job && row('pgwake.unpark(?)', $queue);
            $on_duty = $on_duty && !$job;
            if ($job) {
                echo "{$job['id']} {$job['kind']} ", run($job), "\n";
            } elseif (!$on_duty && ($on_duty = row('pgwake.park(?)', $queue)[0])) {
                $pause = 0.0025; // and looks once more
            } else {
                $due = row('extract(epoch from pgwake.next_run_at(?) - now())', $queue)[0];
                doze($on_duty ? min($pause *= 2, $due > 0 ? (float) $due : $poll, $poll) : $poll, $on_duty);
            }
        }
        $on_duty && row('pgwake.unpark(?)', $queue);
    } catch (PDOException $e) {
        fwrite(STDERR, $e->getMessage() . "\n");
        sleep(1);
    }
}
