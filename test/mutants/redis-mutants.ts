/** Faults in the Lua scripts of the Redis driver, in the module that carries them: a newline there is written \\n. */

import type { Mutant } from "./mutants.ts";

const file = "src/drivers/redis/scripts.ts";
const tests = "test/redis/unreachable.test.ts";
const failover = "test/redis/failover.test.ts";
const model = "test/redis/unreachable-model.test.ts";

export const REDIS_MUTANTS: readonly Mutant[] = [
  {
    name: "on Redis, a grace period taken for busy",
    file,
    find: "if breathing and not isHeld then",
    replace: "if false then",
    tests: "test/drivers/redis-guarded.test.ts",
  },
  {
    name: "on Redis, what is known to be held called unknown in a grace period",
    file,
    find: "if breathing and not isHeld then",
    replace: "if breathing then",
    tests: "test/drivers/redis-guarded.test.ts",
  },
  {
    name: "on Redis, whoever goes on to its next queue not counted as let through",
    file,
    find: "goOn(line, claim, place, permits)\\n      isLetThrough = true",
    replace: "goOn(line, claim, place, permits)",
    tests,
  },
  {
    name: "on Redis, an unreachable waiter granted beside whoever was let through",
    file,
    find: "if passed and not isLetThrough then grantUnheard(line, passed[1]) end",
    replace: "if passed then write(line, passed[1].claim, passed[1].place, passed[1].permits) end",
    tests,
  },
  {
    name: "on Redis, a sum of permits kept although somebody has left",
    file,
    find: "local function leftBy(line)\\n  line.used = nil",
    replace: "local function leftBy(line)",
    tests,
  },
  {
    name: "on Redis, a line not summed up again after somebody was dropped",
    file,
    find: "while true do\\n    look(line)",
    replace: "look(line)\\n  while true do",
    tests,
  },
  {
    name: "on Redis, a line taken for empty because its exclusive holder leaves",
    file,
    find: "if left % 2 == 0 then empty(line) end",
    replace: "empty(line)",
    tests,
  },
  {
    name: "on Redis, the same where one claim holds one key",
    file,
    find: "if left == 2 then empty(line) end",
    replace: "empty(line)",
    tests,
  },
  {
    name: "on Redis, a grant that nobody heard left counted",
    file,
    find: "call('ZREM', line.admitted, place)\\n  line.used = nil\\n  claim.token, claim.isStale = 0, true",
    replace: "line.used = nil\\n  claim.token, claim.isStale = 0, true",
    tests,
  },
  {
    name: "on Redis, a grant said before it is written",
    file,
    find: "write(line, claim, place, permits)\\n  if tell(claim, claim.id .. ' ' .. text(claim.token)",
    replace:
      "local isHeard = tell(claim, claim.id .. ' ' .. text(mint(claim, line)) .. ' 1 1000')\\n  write(line, claim, place, permits)\\n  if isHeard and tell(claim, claim.id .. ' ' .. text(claim.token)",
    tests: "test/redis/rights-in-use.test.ts",
  },
  {
    name: "on Redis, a place left in the queue by whoever holds granted again",
    file,
    find: "return alive(claim) and claim.token == 0 and",
    replace: "return alive(claim) and",
    tests,
  },
  {
    name: "on Redis, a claim answered as it stood before its own call granted it",
    file,
    find: "if held and string.sub(answers[at], 1, 1) == 'w' then",
    replace: "if held and string.sub(answers[at], 1, 1) == '-' then",
    tests,
  },
  {
    name: "on Redis, a dead waiter in front that holds up those who fit",
    file,
    find: "or frontAlive(of) then return false end",
    replace: "or frontOf(of) then return false end",
    tests: model,
  },
  {
    name: "on Redis, a newcomer admitted beside those whom a dead waiter had held up",
    file,
    find: "return fits(of, hold[3], hold[4])\\nend",
    replace: "return true\\nend",
    tests: model,
  },
  {
    name: "on Redis, an unreachable waiter that never loses its place",
    file,
    find: "if claim.missed > heardAt and now - claim.missed >= SECOND then",
    replace: "if claim.missed > heardAt and now - claim.missed >= 1000 * SECOND then",
    tests: model,
  },
  {
    name: "on Redis, an unreachable waiter granted for its whole lease",
    file,
    find: "claim.expires = math.min(claim.expires, now + SECOND)\\n",
    replace: "",
    tests: model,
  },
  {
    name: "on Redis, a line that was swept not settled",
    file,
    find: "> 0 then leftBy(line) end",
    replace: "> 0 then line.used = nil end",
    tests,
  },
  {
    name: "on Redis, the birth record of another reign taken for that of this one",
    file,
    find: "local isSame = known == reign and",
    replace: "local isSame = known ~= nil and",
    tests: failover,
  },
  {
    name: "on Redis, tokens after a promotion not above the mark",
    file,
    find: "math.max(micros, claim.floor, tokenFloor + 1)",
    replace: "math.max(micros, claim.floor)",
    tests: failover,
  },
  {
    name: "on Redis, a mark that a grant passes",
    file,
    find: "if last > mark - LEAST then noteBirth(last + AHEAD) end",
    replace: "",
    tests: failover,
  },
  {
    name: "on Redis, a holder not placed again where a promoted replica has it waiting",
    file,
    find: "and (not known or isWaiting) then",
    replace: "and not known then",
    tests: failover,
  },
  {
    name: "on Redis, a holder that is placed again left in the queue, too",
    file,
    find: "if known then leave(known, holds) end",
    replace: "",
    tests: failover,
  },
  {
    name: "on Redis, a holder told that its lease ran out by a replica that missed its renewals",
    file,
    find: "if known and breathing and not known.ended",
    replace: "if false and known and breathing and not known.ended",
    tests: failover,
  },
  {
    name: "on Redis, a replica that takes writes for the master whose record it has",
    file,
    find: " and string.find(info, 'role:master', 1, true) ~= nil",
    replace: "",
    tests: failover,
  },
  {
    name: "on Redis, a late answer about an earlier place taken for a grant of the present one",
    file: "src/drivers/redis/birth.ts",
    find: "if (this.#known.get(id) !== known) return false;",
    replace: "",
    tests: "test/redis/birth.test.ts",
  },
  {
    name: "on Redis, a late push of an earlier place taken for a grant of the present one",
    file: "src/drivers/redis/birth.ts",
    find: "if (known !== undefined && !known.isAgain)",
    replace: "if (known !== undefined)",
    tests: "test/redis/birth.test.ts",
  },
];
