# What consumer.pl does with a job of each kind: yours go here. A handler takes the payload and the job, and returns
# the result; it has a connection of its own, if it needs one. The heartbeat's alarm cuts a sleep short. What it dies
# with fails the attempt; with a hash of error, retry_in (an interval) and retryable it says when to try again.
use v5.32;
use warnings;
use Time::HiRes qw(sleep time);

sub echo {
    my ($payload) = @_;
    my $until = time + ($payload->{seconds} // 0);
    while ((my $left = $until - time) > 0) { sleep $left }
    return { number => $payload->{number}, by => 'perl' };
}

sub fail_once {
    my ($payload, $job) = @_;
    die { error => 'not yet', retry_in => '0 seconds' } if $job->{attempt} == 1;
    return echo($payload);
}

sub fail {
    echo(@_);
    die { error => 'never', retryable => 0 };
}

return { 'conformance.echo' => \&echo, 'conformance.fail_once' => \&fail_once, 'conformance.fail' => \&fail };
