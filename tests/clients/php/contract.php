<?php
// Runs a contract through pdo_pgsql: DATABASE_URL=... php contract.php FILE
// The format is in ../README.md. Exit code 0: each step went as expected; 1: one did not.
declare(strict_types=1);
require __DIR__ . '/database.php';

const PLACE = '/\{(\w+)\}/';

// Runs a statement with the values in place; returns its first value, or what stands for it, and the SQLSTATE.
function answer(PDO $session, string $sql, array $values): array
{
    preg_match_all(PLACE, $sql, $places);
    try {
        $statement = $session->prepare(preg_replace(PLACE, '?', $sql));
        $statement->execute(array_map(fn ($name) => $values[$name], $places[1]));
        $row = $statement->columnCount() ? $statement->fetch(PDO::FETCH_NUM) : false;
        return [$row ? $row[0] : '(no row)', null];
    } catch (PDOException $e) {
        return [null, $e->getCode()];
    }
}

// What a session has been notified of since it was asked last.
function heard(PDO $session): string
{
    for ($notes = []; $note = $session->pgsqlGetNotify(PDO::FETCH_NUM);) {
        $notes[] = "$note[0] $note[2]";
    }
    return implode(', ', $notes) ?: '(nothing)';
}

[$sessions, $values] = [[], []];
$steps = array_slice(explode("\n-- step: ", file_get_contents($argv[1])), 1);
foreach ($steps as $step) {
    [$title, $rest] = explode("\n", $step, 2);
    preg_match_all('/^-- (in|expect|error|keep|hears): (.*)$/m', $rest, $directives);
    $wanted = array_combine($directives[1], $directives[2]);
    $session = $sessions[$wanted['in'] ?? 'a'] ??= connect();
    [$value, $error] = answer($session, preg_replace('/^--.*$/m', '', $rest), $values);
    if (isset($wanted['keep']) && $error === null) {
        $values = array_combine(explode(' ', $wanted['keep']), $value === null ? [null] : explode("\n", $value)) + $values;
    }
    $got = ['error' => $error, 'expect' => match ($value) { null => '(null)', '' => '(empty)', default => $value }];
    isset($wanted['hears']) && $got['hears'] = heard($session);
    foreach ($got as $word => $was) {
        $expected = $wanted[$word] ?? null;
        if ($expected === null && $word === 'expect') {
            continue;
        }
        $expected = $expected === null ? null : preg_replace_callback(PLACE, fn ($match) => $values[$match[1]], $expected);
        if ($was !== $expected) {
            echo "step \"$title\": expected $word $expected, got $was\n";
            exit(1);
        }
    }
}
echo count($steps), " steps\n";
