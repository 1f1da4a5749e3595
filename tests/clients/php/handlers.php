<?php
// What consumer.php does with a job of each kind: yours go here. A handler takes the payload and the job, and returns
// the result; it has a connection of its own, if it needs one. The heartbeat's alarm cuts a sleep short. What it throws
// fails the attempt; a Failure says when to try again (an interval), or never.
declare(strict_types=1);

final class Failure extends Exception
{
    public function __construct(string $message, public ?string $retryIn = null, public bool $retryable = true)
    {
        parent::__construct($message);
    }
}

function take_time(array $payload): array
{
    $until = microtime(true) + ($payload['seconds'] ?? 0);
    while (($left = $until - microtime(true)) > 0) {
        usleep((int) ceil($left * 1e6));
    }
    return ['number' => $payload['number'] ?? null, 'by' => 'php'];
}

function fail_once(array $payload, array $job): array
{
    return $job['attempt'] === 1 ? throw new Failure('not yet', retryIn: '0 seconds') : take_time($payload);
}

function fail(array $payload): never
{
    take_time($payload);
    throw new Failure('never', retryable: false);
}

return [
    'conformance.echo' => take_time(...),
    'conformance.fail_once' => fail_once(...),
    'conformance.fail' => fail(...),
];
