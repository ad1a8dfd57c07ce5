// A planner, an executor and a watcher in another language: node client.js TARGET PROTO TOKEN
// Prints what it saw as one line of JSON; test_grpc_node.py judges it.
"use strict";

const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

const [target, proto, token] = process.argv.slice(2);
// Fences have 16 digits: as text they come through whole.
const options = { keepCase: true, longs: String, defaults: true };
const { sharedmem } = grpc.loadPackageDefinition(loader.loadSync(proto, options));
const memory = new sharedmem.v1.MemoryService(target, grpc.credentials.createInsecure());

const metadata = new grpc.Metadata();
metadata.set("authorization", `Bearer ${token}`);

function ask(method, request, shown = metadata) {
  const deadline = Date.now() + 10_000;
  return new Promise((resolve, reject) => {
    memory[method](request, shown, { deadline }, (error, answer) => (error ? reject(error) : resolve(answer)));
  });
}

async function refusal(call) {
  try {
    await call;
    return null;
  } catch (error) {
    return { status: grpc.status[error.code], code: error.metadata.get("sharedmem-code")[0] };
  }
}

/** The changes from a cursor on, until so many have come. */
function changes(cursor, count) {
  return new Promise((resolve, reject) => {
    const found = [];
    const stream = memory.Watch({ cursor }, metadata);
    stream.on("error", (error) => (error.code === grpc.status.CANCELLED ? null : reject(error)));
    stream.on("data", (answer) => {
      if (answer.change) found.push({ ...answer.change, cursor: answer.cursor });
      if (found.length === count) {
        stream.cancel();
        resolve(found);
      }
    });
  });
}

async function main() {
  const seen = {};
  const plan = { session_id: "btc", symbol: "BTC", action: "BUY", confidence: 0.85, reasoning: "späte Flut ↗" };
  const { plan_hash } = await ask("SavePlan", plan);
  seen.again = await ask("SaveIfNew", { plan });
  seen.plans = (await ask("GetRecentPlans", { session_id: "btc" })).plans;
  seen.claims = [];
  for (let tries = 0; tries < 2; tries += 1) {
    seen.claims.push(await ask("BeginExecution", { session_id: "btc", plan_hash }));
  }
  const { fence } = seen.claims[0];
  const ending = { session_id: "btc", plan_hash, status: "success", order_id: "order-1", order_size_usdt: 100 };
  seen.finished = await ask("FinishExecution", { ...ending, fence });
  seen.stats = await ask("GetExecutionStats", { session_id: "btc" });
  seen.changes = await changes("0", 3);
  seen.refusals = {
    twice: await refusal(ask("MarkExecuted", { ...ending, ...plan, plan_hash, status: "error" })),
    lost: await refusal(ask("RenewExecution", { session_id: "btc", plan_hash, fence: "1" })),
    bad: await refusal(ask("SavePlan", { ...plan, confidence: 2 })),
    stranger: await refusal(ask("SavePlan", plan, new grpc.Metadata())),
  };
  console.log(JSON.stringify(seen));
  memory.close();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
