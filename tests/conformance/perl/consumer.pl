# A consumer of pgwake in Perl (DBD::Pg): claims one job at a time, extends its lease by an
# alarm while the handler runs, sleeps on duty by LISTEN ("Being woken" in sql/README.md).
# Environment: DATABASE_URL, QUEUE (default), LEASE (seconds, 30). SIGTERM gives a running
# job back. Somebody has to sweep leases that ran out: a pgwake worker, or cron.
use v5.32;
use warnings;
use open qw(:std :utf8);
use DBI;
use JSON::PP;
use List::Util qw(min);
use Time::HiRes qw(alarm sleep time);

my $json  = JSON::PP->new->allow_nonref;
my $queue = $ENV{QUEUE} // 'default';
my $lease = $ENV{LEASE} // 30;
my $beat  = $lease / 3;
my $poll  = 5;    # seconds until the next look at most, should a notification be lost

# Handlers have a connection of their own, if they need one. What they die with fails the
# job; with a hash of fail_job's arguments it says how. Signals cut a sleep short.
sub echo {
    my ($job) = @_;
    my $until = time + ($job->{payload}{seconds} // 0);
    while ((my $left = $until - time) > 0) { sleep $left }
    return { number => $job->{payload}{number}, by => 'perl' };
}
my %handlers = (
    'conformance.echo'      => \&echo,
    'conformance.fail_once' => sub {
        die { error => 'not yet', retry_in => '0 seconds' } if $_[0]{attempt} == 1;
        return echo(@_);
    },
    'conformance.fail' => sub { die { error => 'never', retryable => 0 } },
);

my ($db, $stopping, $cut);
$SIG{TERM} = sub { $stopping = 1 };
$SIG{ALRM} = 'IGNORE';

sub ask { my $call = shift; return ($db->selectrow_array("select $call", undef, @_))[0] }
sub cut { $cut = shift; die "cut short: $cut\n" }

# Runs the handler of a job, whose lease is kept meanwhile; returns its result.
sub handle {
    my ($job, @key) = @_;
    local $SIG{ALRM} = sub {
        my $answer = ask('(pgwake.extend_leases(array[$1::bigint], array[$2::uuid], make_interval(secs => $3)))[1]', @key, $lease);
        cut($answer) if $answer ne 'extended';
        alarm $beat;
    };
    local $SIG{TERM} = sub { $stopping = 1; cut('stop') };
    cut('stop') if $stopping;
    my $handler = $handlers{ $job->{kind} } or die "unknown kind $job->{kind}\n";
    $job->{payload} = $json->decode($job->{payload});
    alarm $beat;
    my $result = $handler->($job);
    alarm 0;
    return $json->encode($result);
}

# Runs a job and tells how it ended; returns that.
sub run {
    my ($job) = @_;
    my @key = @$job{qw(id lease_id)};
    undef $cut;
    my $result = eval { handle($job, @key) };
    my $error  = $@;
    alarm 0;
    return eval {
        if (!$cut && defined $result) { ask('pgwake.complete_job($1, $2, $3)', @key, $result); return 'completed' }
        if (($cut // '') eq 'stop') { ask("pgwake.release_jobs(array[\$1::bigint], array[\$2::uuid], 'shutdown')", @key); return 'released' }
        if (($cut // 'cancel_requested') ne 'cancel_requested') { return 'lost' }
        my %failure = ref $error eq 'HASH' ? %$error : (error => $error =~ s/\n\z//r);
        ask('pgwake.fail_job($1, $2, $3, retry_in => $4, retryable => $5)', @key, @failure{qw(error retry_in)}, $failure{retryable} // 1);
    } // ($db->state eq 'PW002' ? 'lost' : die);
}

# Sleeps until a notification for this consumer, or so many seconds.
sub doze {
    my ($seconds, $on_duty) = @_;
    my $until = time + $seconds;
    while (!$stopping) {
        while (my $note = $db->pg_notifies) {
            return if $note->[2] eq $queue && ($on_duty || $note->[0] eq 'pgwake_baton');
        }
        my $left = $until - time;
        return if $left <= 0;
        vec(my $readable = '', $db->{pg_socket}, 1) = 1;
        select $readable, undef, undef, $left;
    }
}

sub work {
    $db = DBI->connect("dbi:Pg:$ENV{DATABASE_URL}", '', '', { RaiseError => 1, PrintError => 0 });
    $db->do($_) for 'listen pgwake', 'listen pgwake_baton';
    say 'ready';
    my ($on_duty, $pause);
    while (!$stopping) {
        1 while $db->pg_notifies;    # forgotten before the claim, never after it
        my $job = $db->selectrow_hashref(
            'select id, lease_id, kind, payload, attempt from pgwake.claim_next_job($1, $2, make_interval(secs => $3))',
            undef, $queue, "perl-$$", $lease);
        if ($job) {
            ask('pgwake.unpark($1)', $queue) if $on_duty;
            $on_duty = 0;
            say "$job->{id} $job->{kind} " . run($job);
        } elsif ($on_duty) {
            # Soon at first: who inserted before it was on duty, and commits now, does not notify.
            doze(ask('least(nullif(greatest(extract(epoch from pgwake.next_run_at($1) - now()), 0), 0), $2)', $queue, $pause), 1);
            $pause = min 2 * $pause, $poll;
        } elsif (ask('pgwake.park($1)', $queue)) {
            ($on_duty, $pause) = (1, 0.005);    # and looks once more
        } else {
            doze($poll, 0);
        }
    }
    ask('pgwake.unpark($1)', $queue) if $on_duty;
}

$| = 1;
until ($stopping) {
    eval { work(); 1 } or print STDERR $@;
    sleep 1 if !$stopping;
}
