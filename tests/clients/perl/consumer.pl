# A consumer on DBD::Pg: DATABASE_URL=... QUEUE=... LEASE=... perl consumer.pl, until SIGTERM.
# Claims one job at a time, keeps its lease by an alarm, and is on duty ("Being woken" in sql/CONSUMERS.md) between.
use v5.32;
use warnings;
use open qw(:std :utf8);
use DBI;
use FindBin;
use JSON::PP;
use Time::HiRes qw(alarm sleep time);

my ($queue, $lease) = ($ENV{QUEUE} // 'default', $ENV{LEASE} // 30);    # seconds
my $handlers = do "$FindBin::Bin/handlers.pl" // die $@ || $!;
my $json     = JSON::PP->new->allow_nonref;
my ($db, $on_duty, $stopping);
($|, $SIG{TERM}) = (1, sub { $stopping = 1 });

sub row { my $call = shift; return $db->selectrow_hashref("select * from $call", undef, @_) }

sub run {    # says how the job ended
    my ($job) = @_;
    my @mine = @$job{qw(id lease_id)};
    local $SIG{ALRM} = sub { row('pgwake.extend_leases(array[$1::bigint], array[$2::uuid], $3)', @mine, $lease) };
    alarm $lease / 3, $lease / 3;
    my $outcome = eval {
        my $handler = $handlers->{ $job->{kind} } or die "unknown kind $job->{kind}\n";
        my $result  = $handler->($json->decode($job->{payload}), $job);
        row('pgwake.complete_job($1, $2, $3)', @mine, $json->encode($result)) && 'completed';
    };
    my %failure = (retryable => 1, ref $@ eq 'HASH' ? %{$@} : (error => $@ =~ s{\n\z}{}r));
    alarm 0;
    my $fail = 'pgwake.fail_job($1, $2, $3, retry_in => $4, retryable => $5)';
    return $outcome // eval { row($fail, @mine, @failure{qw(error retry_in retryable)})->{fail_job} }
        // ($db->state eq 'PW002' ? 'lost' : die);    # somebody else has it
}

sub doze {    # until the queue is named, or so many seconds
    my $until = time + shift;
    while (!$stopping && (my $left = $until - time) > 0) {
        vec(my $readable = '', $db->{pg_socket}, 1) = 1;
        select $readable, undef, undef, $left;
        while (my $note = $db->pg_notifies) {
            return if $note->[2] eq $queue && ($on_duty || $note->[0] eq 'pgwake_duty');
        }
    }
}

sub work {
    $db = DBI->connect("dbi:Pg:$ENV{DATABASE_URL}", '', '', { RaiseError => 1, PrintError => 0 });
    $db->do('listen pgwake; listen pgwake_duty');
    say 'ready';
    while (!$stopping) {
        1 while $db->pg_notifies;    # forgets what has been heard: before each claim, never after it
        my $job = row('pgwake.claim_or_wait($1, $2, $3)', $queue, "perl-$$", $lease);
        $on_duty = $job->{is_on_duty};
        $job->{id} ? say("$job->{id} $job->{kind} " . run($job)) : doze($job->{wait_seconds});
    }
    row('pgwake.unpark($1)', $queue) if $on_duty;
}

until ($stopping) { eval { work(); 1 } or warn($@), sleep 1 }
