<?php
// A producer of pgwake in PHP (pdo_pgsql): plain inserts in transactions of the caller's own.
// php producer.php N [PREFIX]; environment: DATABASE_URL, QUEUE (default).
declare(strict_types=1);
require __DIR__ . '/database.php';

$count = (int) $argv[1];
$prefix = $argv[2] ?? 'php-';
$db = connect();
$statement = $db->prepare(<<<'SQL'
    insert into pgwake.jobs (queue, kind, payload, metadata, unique_key, priority)
    values (?, 'conformance.echo', ?, ?, ?, ?)
    on conflict do nothing
    SQL);

// Adds a job, unless a live one has its unique key; returns how many were added.
$insert = function (int $number, int $priority = 0) use ($statement, $prefix): int {
    $statement->execute([getenv('QUEUE') ?: 'default', json_encode(['number' => $number]),
        json_encode(['from' => 'php']), $prefix . $number, $priority]);
    return $statement->rowCount();
};

$inserted = 0;
for ($first = 0; $first < $count; $first += 10) {
    $db->beginTransaction();
    foreach (range($first, min($first + 10, $count) - 1) as $number) {
        $inserted += $insert($number);
    }
    $db->commit();
}

// With the caller's work its jobs are rolled back: they have never been there.
$db->beginTransaction();
try {
    foreach (range($count, $count + 9) as $number) {
        $insert($number);
    }
    throw new RuntimeException('the order is not paid');
} catch (RuntimeException $e) {
    $db->rollBack();
    fwrite(STDERR, $e->getMessage() . "\n");
}

// A job that can't be meant is refused; the session is as before.
try {
    $insert($count, priority: 1000);
} catch (PDOException $e) {
    echo "refused {$e->getCode()}\n";
}
echo "inserted $inserted\n";
