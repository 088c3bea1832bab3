/** Faults of successors: claims to which the client hands a lock on without asking the store. */

import type { Mutant } from "./mutants.ts";

const redisTests = "test/integration/redis/queue-fuzz.test.ts";
const table = "src/lock-table/successors.ts";
const tableTests = "test/unit/lock-table/successors.test.ts";
const client = "src/client/grant.ts";
const clientTests =
  "test/unit/client/grant.test.ts test/unit/client/successors.test.ts test/unit/client/successor-turns.test.ts";

export const SUCCESSORS_MUTANTS: readonly Mutant[] = [
  {
    name: "a successor of another process, on Redis",
    file: "src/drivers/redis/lua/lib/hand_on.lua",
    find: "if not readWaiter(record) or sub(record, -#ending) ~= ending then return false",
    replace: "if not readWaiter(record) then return false",
    tests: redisTests,
  },
  {
    name: "successors without tokens of their own, on Redis",
    file: "src/drivers/redis/lua/lib/hand_on.lua",
    find: "tokens = #ids + 1 .. ''",
    replace: "tokens = tokens",
    tests: redisTests,
  },
  {
    name: "a successor that did not ask, on Redis",
    file: "src/drivers/redis/lua/lib/records.lua",
    find: "' %d+ (%d+) 1' .. WANTS_SUCCESSORS .. '",
    replace: "' %d+ (%d+) 1%d",
    tests: redisTests,
  },
  {
    name: "a waiter that leaves its queue although others fit beside the holder then, on Redis",
    file: "src/drivers/redis/lua/lib/wait_behind.lua",
    find: "local holderId = readHolder(record)\n",
    replace: "local holderId = match(record, ID_TTL_PERMITS_LIMIT_RECALL, BODY_AT)\n",
    tests: "test/integration/redis/contended-path.test.ts",
  },
  {
    name: "the last waiter that leaves a queue, which the record does not say, on Redis",
    file: "src/drivers/redis/lua/lib/wait_behind.lua",
    find: "if try('EXISTS', key.waiting) == 0 then",
    replace: "if false then",
    tests: redisTests,
  },
  {
    name: "a successor of another owner",
    file: table,
    find: "    owner === holder.owner &&\n",
    replace: "",
    tests: tableTests,
  },
  {
    name: "a successor whose floor is above its token",
    file: table,
    find: "Number(claim.floor) <= holder.token + distance",
    replace: "true",
    tests: tableTests,
  },
  {
    name: "successors without tokens of their own",
    file: table,
    find: "  if (ids.length > 0) tokenIssuer.extend(record, 1 + ids.length);\n  return ids.slice(0, record.tokenCount - 1);",
    replace: "  return ids;",
    tests: tableTests,
  },
  {
    name: "a lock handed on to a request that the store has granted",
    file: client,
    find: 'status === "asking" || status === "waiting"',
    replace: 'status !== "done"',
    tests: clientTests,
  },
  {
    name: "a lock handed on under the label of another request",
    file: client,
    find: "isPending && successor.claim.label === claim.label",
    replace: "isPending",
    tests: clientTests,
  },
  {
    name: "a lock handed on to the successors of an earlier grant",
    file: client,
    find: "    if (successors.token !== state.token) return null;\n",
    replace: "",
    tests: clientTests,
  },
  {
    name: "a successor with the token of one before it that is gone",
    file: client,
    find: "      this.takeToken();\n    }\n    return null;",
    replace: "      this.#tokensLeft--;\n    }\n    return null;",
    tests: clientTests,
  },
  {
    name: "a lock handed on while its claim stays in the queue",
    file: "src/client/local-queue.ts",
    find: "    this.context.engine.release(ownClaim, now);\n",
    replace: "",
    tests: clientTests,
  },
  {
    name: "a lock handed on with little of its lease left",
    file: client,
    find: ' || !this.isUsable(now)) return "end";',
    replace: ') return "end";',
    tests: clientTests,
  },
  {
    name: "events of a lock that was handed on go to its former holder",
    file: "src/client/local-queue.ts",
    find: "    grant.activeClaim.listener = successor;\n",
    replace: "",
    tests: clientTests,
  },
];
