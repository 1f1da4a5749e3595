// BullMQ on PostgreSQL as a peer of the runner; ended jobs are kept, as shipped.
//   default  concurrency c, a pool of 10 connections (as node-postgres ships)
//   tuned    concurrency and connections c
import fs from "node:fs";
import { createRequire } from "node:module";
import { run } from "../kit.mjs";
const ROOT = process.env.BENCH_ROOT;
const req = createRequire(`${ROOT}/node/x.js`);
const { Queue, Worker, createPostgresBackend } = req("bullmq");
const version = JSON.parse(fs.readFileSync(`${ROOT}/node/node_modules/bullmq/package.json`)).version;
run({
  name: "bullmq", version,
  pending_sql: "select count(*) from bullmq.job where queue = 'q' and state in ('waiting', 'delayed', 'active')",
  profiles: { default: "concurrency=c, pool of 10", tuned: "concurrency=c, pool of c" },
  options(max) { return { connection: { connectionString: this.dsn, max, migrate: true } }; },
  async openProducer(conns) {
    this.queue = new Queue("q", this.options(conns), createPostgresBackend);
    await this.queue.waitUntilReady();
  },
  async setup() { await this.openProducer(1); await this.queue.close(); },
  put(t0) { return this.queue.add("noop", { t0 }); },
  putMany(n) { return this.queue.addBulk(Array.from({ length: n }, () => ({ name: "noop", data: { t0: 0 } }))); },
  async work(c, hit) {
    const options = { ...this.options(this.tuned ? c : 10), concurrency: c };
    const worker = new Worker("q", async (job) => { hit(job.data.t0); }, options, createPostgresBackend);
    worker.on("error", (error) => console.error(error));
    await worker.waitUntilReady();
  },
});
