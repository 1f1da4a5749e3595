# Runs a contract through DBD::Pg: DATABASE_URL=... perl contract.pl FILE
# The format is in ../README.md. Exit code 0: each step went as expected; 1: one did not.
use v5.32;
use warnings;
use open qw(:std :utf8);
use DBI;

my (%sessions, %values);
my $place = qr/\{(\w+)\}/;

# Runs a statement with the values in place; returns its first value, or what stands for it, and the SQLSTATE.
sub answer {
    my ($session, $sql) = @_;
    my @parameters;
    $sql =~ s/$place/push @parameters, $values{$1}; '$' . @parameters/ge;
    my $statement = eval { my $ready = $session->prepare($sql); $ready->execute(@parameters); $ready };
    return (undef, $session->state) if !$statement;
    my $row = $statement->{NUM_OF_FIELDS} ? $statement->fetchrow_arrayref : undef;
    return ($row ? $row->[0] : '(no row)', '');
}

# What a session has been notified of since it was asked last.
sub heard {
    my ($session) = @_;
    my @notes;
    while (my $note = $session->pg_notifies) { push @notes, "$note->[0] $note->[2]" }
    return join(', ', @notes) || '(nothing)';
}

my (undef, @steps) = split /\n-- step: /, do { local $/; <> };
for my $step (@steps) {
    my ($title, $rest) = split /\n/, $step, 2;
    my %wanted = $rest =~ /^-- (in|expect|error|keep|hears): (.*)$/mg;
    my $session = $sessions{ $wanted{in} // 'a' } //= DBI->connect("dbi:Pg:$ENV{DATABASE_URL}", '', '',
        { RaiseError => 1, PrintError => 0, PrintWarn => 0, pg_bool_tf => 1 });
    my ($value, $error) = answer($session, $rest =~ s/^--.*$//mgr);
    if (defined $wanted{keep} && !$error) {
        @values{ split ' ', $wanted{keep} } = length($value // '') ? split /\n/, $value : $value;
    }
    my %got = (error => $error, expect => !defined $value ? '(null)' : length $value ? $value : '(empty)');
    $got{hears} = heard($session) if defined $wanted{hears};
    for my $word (sort keys %got) {
        my $expected = $wanted{$word} // ($word eq 'error' ? '' : next);
        $expected =~ s/$place/$values{$1}/g;
        next if $got{$word} eq $expected;
        say qq(step "$title": expected $word $expected, got $got{$word});
        exit 1;
    }
}
say scalar(@steps), ' steps';
