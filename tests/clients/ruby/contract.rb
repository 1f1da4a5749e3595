# Runs a contract through the gem pg: DATABASE_URL=... ruby contract.rb FILE
# The format is in ../README.md. Exit code 0: each step went as expected; 1: one did not.
require "pg"

PLACE = /\{(\w+)\}/

# Runs a statement with the values in place; returns its first value, or what stands for it, and the SQLSTATE.
def answer(session, sql, values)
  parameters = []
  statement = sql.gsub(PLACE) { "$#{parameters.push(values.fetch(Regexp.last_match(1))).size}" }
  rows = session.exec_params(statement, parameters).values
  [rows.empty? ? "(no row)" : rows[0][0], nil]
rescue PG::Error => e
  [nil, e.result&.error_field(PG::PG_DIAG_SQLSTATE)]
end

# What a session has been notified of since it was asked last.
def heard(session)
  session.consume_input
  notes = []
  while (note = session.notifies)
    notes << "#{note[:relname]} #{note[:extra]}"
  end
  notes.empty? ? "(nothing)" : notes.join(", ")
end

sessions = Hash.new { |opened, name| opened[name] = PG.connect(ENV.fetch("DATABASE_URL")) }
values = {}
steps = File.read(ARGV.fetch(0), encoding: "UTF-8").split("\n-- step: ").drop(1)
steps.each do |step|
  title, rest = step.split("\n", 2)
  wanted = rest.scan(/^-- (in|expect|error|keep|hears): (.*)$/).to_h
  session = sessions[wanted.fetch("in", "a")]
  value, error = answer(session, rest.gsub(/^--.*$/, ""), values)
  if wanted.key?("keep") && error.nil?
    values.merge!(wanted["keep"].split.zip(value.to_s.empty? ? [value] : value.split("\n")).to_h)
  end
  got = { "error" => error, "expect" => value.nil? ? "(null)" : value.sub(/\A\z/, "(empty)") }
  got["hears"] = heard(session) if wanted.key?("hears")
  got.each do |word, was|
    expected = wanted[word]&.gsub(PLACE) { values.fetch(Regexp.last_match(1)) }
    next if was == expected || (expected.nil? && word == "expect")

    puts "step \"#{title}\": expected #{word} #{expected}, got #{was}"
    exit 1
  end
end
puts "#{steps.size} steps"
