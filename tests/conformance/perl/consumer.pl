# A consumer on DBD::Pg: DATABASE_URL=... QUEUE=... LEASE=... perl consumer.pl, until SIGTERM.
# Claims one job at a time, keeps its lease by an alarm, and is on duty ("Being woken" in sql/README.md) between.
use v5.32;
use warnings;
use open qw(:std :utf8);
use DBI;
use FindBin;
use JSON::PP;
use List::Util qw(min);
use Time::HiRes qw(alarm sleep time);

my ($queue, $lease, $poll) = ($ENV{QUEUE} // 'default', $ENV{LEASE} // 30, 5);    # seconds
my $handlers = do "$FindBin::Bin/handlers.pl" // die $@ || $!;
my $claim    = 'select * from pgwake.claim_next_job($1, $2, $3)';
my $json     = JSON::PP->new->allow_nonref;
my ($db, $on_duty, $stopping);
$SIG{TERM} = sub { $stopping = 1 };

sub ask { my $call = shift; return ($db->selectrow_array("select $call", undef, @_))[0] }

sub run {    # says how the job ended
    my ($job) = @_;
    my @mine = @$job{qw(id lease_id)};
    local $SIG{ALRM} = sub { ask('pgwake.extend_leases(array[$1::bigint], array[$2::uuid], $3)', @mine, $lease) };
    alarm $lease / 3, $lease / 3;
    my $outcome = eval {
        my $handler = $handlers->{ $job->{kind} } or die "unknown kind $job->{kind}\n";
        my $result  = $handler->($json->decode($job->{payload}), $job);
        ask('pgwake.complete_job($1, $2, $3)', @mine, $json->encode($result)) || 'completed';
    };
    my %failure = (retryable => 1, ref $@ eq 'HASH' ? %{$@} : (error => $@ =~ s{\n\z}{}r));
    alarm 0;
    my $fail = 'pgwake.fail_job($1, $2, $3, retry_in => $4, retryable => $5)';
    return $outcome // eval { ask($fail, @mine, @failure{qw(error retry_in retryable)}) }
        // ($db->state eq 'PW002' ? 'lost' : die);    # somebody else has it
}

sub doze {    # until the queue is named, or so many seconds
    my $until = time + shift;
    while (!$stopping && (my $left = $until - time) > 0) {
        vec(my $readable = '', $db->{pg_socket}, 1) = 1;
        select $readable, undef, undef, $left;
        while (my $note = $db->pg_notifies) {
            my ($channel, undef, $name) = @$note;
            return if $name eq $queue && ($on_duty || $channel eq 'pgwake_baton');
        }
    }
}

sub work {
    $db = DBI->connect("dbi:Pg:$ENV{DATABASE_URL}", '', '', { RaiseError => 1, PrintError => 0 });
    $db->do('listen pgwake; listen pgwake_baton');
    say 'ready';
    $on_duty = my $pause = 0;
    while (!$stopping) {
        1 while $db->pg_notifies;    # forgets what has been heard: before each claim, never after it
        my $job = $db->selectrow_hashref($claim, undef, $queue, "perl-$$", $lease);
        $on_duty = !ask('pgwake.unpark($1)', $queue) if $on_duty && $job;
        if    ($job) { say "$job->{id} $job->{kind} " . run($job) }
        elsif (!$on_duty && ($on_duty = ask('pgwake.park($1)', $queue))) { $pause = 0.0025 }    # and looks once more
        else {
            my $due = ask('extract(epoch from pgwake.next_run_at($1) - now())', $queue) // 0;
            doze($on_duty ? min($pause *= 2, $due > 0 ? $due : $poll, $poll) : $poll);
        }
    }
    ask('pgwake.unpark($1)', $queue) if $on_duty;
}

$| = 1;
until ($stopping) { eval { work(); 1 } or warn($@), sleep 1 }
