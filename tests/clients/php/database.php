<?php
declare(strict_types=1);

// A connection to the database that DATABASE_URL names, in the form that all but PDO know.
function connect(): PDO
{
    $url = parse_url(getenv('DATABASE_URL'));
    $options = strtr($url['query'] ?? '', '&', ';');
    return new PDO(
        "pgsql:host={$url['host']};port=" . ($url['port'] ?? 5432) . ';dbname=' . substr($url['path'], 1) . ";$options",
        urldecode($url['user']), urldecode($url['pass'] ?? ''), [PDO::PGSQL_ATTR_DISABLE_PREPARES => true]);
}

// The first row of what a function answers, by name; false if there is none.
function row(PDO $db, string $call, mixed ...$values): array|false
{
    $statement = $db->prepare("select * from $call");
    $statement->execute($values);
    return $statement->fetch(PDO::FETCH_ASSOC);
}
