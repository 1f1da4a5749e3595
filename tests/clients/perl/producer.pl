# A producer of pgwake in Perl (DBD::Pg): plain inserts in transactions of the caller's own.
# perl producer.pl N [PREFIX]; environment: DATABASE_URL, QUEUE (default).
use v5.32;
use warnings;
use DBI;
use JSON::PP;

my ($count, $prefix) = @ARGV;
$prefix //= 'perl-';
my $json  = JSON::PP->new;
my $queue = $ENV{QUEUE} // 'default';
my $db = DBI->connect("dbi:Pg:$ENV{DATABASE_URL}", '', '', { RaiseError => 1, PrintError => 0 });
my $insert = $db->prepare(<<~'SQL');
    insert into pgwake.jobs (queue, kind, payload, metadata, unique_key, priority)
    values ($1, 'conformance.echo', $2, $3, $4, $5)
    on conflict do nothing
    SQL

# Adds a job, unless a live one has its unique key; returns how many were added.
sub insert {
    my ($number, $priority) = @_;
    return 0 + $insert->execute($queue, $json->encode({ number => $number }), $json->encode({ from => 'perl' }),
        "$prefix$number", $priority // 0);
}

# Runs code in a transaction: all of it counts, or nothing where it dies.
sub transaction {
    my ($code) = @_;
    $db->begin_work;
    eval { $code->(); $db->commit; 1 } and return;
    my $error = $@;
    $db->rollback;
    die $error;
}

$| = 1;
my $inserted = 0;
for (my $first = 0; $first < $count; $first += 10) {
    my $last = $first + 9 < $count ? $first + 9 : $count - 1;
    transaction(sub { $inserted += insert($_) for $first .. $last });
}

# With the caller's work its jobs are rolled back: they have never been there.
eval { transaction(sub { insert($_) for $count .. $count + 9; die "the order is not paid\n" }) } or print STDERR $@;

# A job that can't be meant is refused; the session is as before.
eval { insert($count, 1000) } // say 'refused ' . $db->state;
say "inserted $inserted";
