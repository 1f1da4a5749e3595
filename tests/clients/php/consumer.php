<?php
// A consumer on pdo_pgsql and pcntl: DATABASE_URL=... QUEUE=... LEASE=... php consumer.php, until SIGTERM.
// Claims one job at a time, keeps its lease by an alarm, and is on duty ("Being woken" in sql/CONSUMERS.md) between.
declare(strict_types=1);
require __DIR__ . '/database.php';
define('HANDLERS', require __DIR__ . '/handlers.php');
define('QUEUE', getenv('QUEUE') ?: 'default');
define('LEASE', (int) (getenv('LEASE') ?: 30)); // seconds
$stopping = false;
pcntl_async_signals(true);
pcntl_signal(SIGTERM, function () use (&$stopping) { $stopping = true; });

function run(PDO $db, array $job): string // says how it ended
{
    pcntl_signal(SIGALRM, function () use ($db, $job) {
        pcntl_alarm(max(1, intdiv(LEASE, 3)));
        row($db, 'pgwake.extend_leases(array[?::bigint], array[?::uuid], ?)', $job['id'], $job['lease_id'], LEASE);
    });
    pcntl_alarm(max(1, intdiv(LEASE, 3)));
    try {
        $handle = HANDLERS[$job['kind']] ?? throw new Exception("unknown kind {$job['kind']}");
        $result = json_encode($handle(json_decode($job['payload'], true), $job), JSON_THROW_ON_ERROR);
        row($db, 'pgwake.complete_job(?, ?, ?)', $job['id'], $job['lease_id'], $result);
        return 'completed';
    } catch (Throwable $e) {
        $how = [$job['id'], $job['lease_id'], $e->getMessage(), $e->retryIn ?? null, (int) ($e->retryable ?? true)];
        try {
            return row($db, 'pgwake.fail_job(?, ?, ?, retry_in => ?, retryable => ?)', ...$how)['fail_job'];
        } catch (PDOException $refused) {
            return $refused->getCode() === 'PW002' ? 'lost' : throw $refused; // somebody else has it
        }
    } finally {
        pcntl_alarm(0);
    }
}

function doze(PDO $db, array $job): void // until the queue is named
{
    $until = microtime(true) + $job['wait_seconds'];
    $wakes = fn ($note) => $note && $note[2] === QUEUE && ($job['is_on_duty'] || $note[0] === 'pgwake_duty');
    while (!$GLOBALS['stopping'] && ($left = $until - microtime(true)) > 0
        && !$wakes($db->pgsqlGetNotify(PDO::FETCH_NUM, (int) ceil(1000 * $left))));
}

while (!$stopping) {
    try {
        $db = connect();
        $db->exec('listen pgwake; listen pgwake_duty');
        echo "ready\n";
        while (!$stopping) {
            while ($db->pgsqlGetNotify()); // forgets what has been heard: before each claim, never after it
            $job = row($db, 'pgwake.claim_or_wait(?, ?, ?)', QUEUE, 'php-' . getmypid(), LEASE);
            $job['id'] ? print("{$job['id']} {$job['kind']} " . run($db, $job) . "\n") : doze($db, $job);
        }
        $job['is_on_duty'] && row($db, 'pgwake.unpark(?)', QUEUE);
    } catch (PDOException $e) {
        fwrite(STDERR, $e->getMessage() . "\n");
        sleep(1);
    }
}
