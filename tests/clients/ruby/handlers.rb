# What consumer.rb does with a job of each kind: yours go here. A handler takes the payload and the job, and returns
# the result. An error fails the attempt; a Failure says when to try again (an interval), or never.
class Failure < StandardError
  attr_reader :retry_in, :retryable

  def initialize(message, retry_in: nil, retryable: true)
    super(message)
    @retry_in = retry_in
    @retryable = retryable
  end
end

ECHO = lambda do |payload, _job|
  sleep(payload["seconds"] || 0)
  { number: payload["number"], by: "ruby" }
end

FAIL_ONCE = lambda do |payload, job|
  raise Failure.new("not yet", retry_in: "0 seconds") if job["attempt"] == "1"

  ECHO.call(payload, job)
end

FAIL = lambda do |payload, job|
  ECHO.call(payload, job)
  raise Failure.new("never", retryable: false)
end

HANDLERS = { "conformance.echo" => ECHO, "conformance.fail_once" => FAIL_ONCE, "conformance.fail" => FAIL }.freeze
