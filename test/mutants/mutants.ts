/**
 * Faults put into the code on purpose, each a change of text that must match exactly once. The simulator or the tests of
 * core must notice every one of them: else they would not notice the same fault made by accident.
 */

import { readFileSync } from "node:fs";
import { REDIS_MUTANTS } from "./redis-mutants.ts";
import { STATE_MUTANTS } from "./state-mutants.ts";
import { ZOOKEEPER_MUTANTS } from "./zookeeper-mutants.ts";

export interface Mutant {
  /** The fault, as a reader of the design would say it. */
  readonly name: string;
  readonly file: string;
  readonly find: string;
  readonly replace: string;
  /** Tests to try if the simulator does not notice; default: those of core. */
  readonly tests?: string;
}

/** The text of its file with the fault. @throws if what it changes does not stand there exactly once */
export function mutated({ name, file, find, replace }: Mutant): string {
  const text = readFileSync(file, "utf8");
  const matches = text.split(find).length - 1;
  if (matches !== 1) throw new Error(`"${name}": its text is found ${matches} times in ${file}`);
  return text.replace(find, () => replace);
}

export const MUTANTS: readonly Mutant[] = [
  ...REDIS_MUTANTS,
  ...STATE_MUTANTS,
  ...ZOOKEEPER_MUTANTS,
  // --- time and belief
  {
    name: "a detached lease longer than its claim's",
    file: "src/core/leases.ts",
    find: "    if (until >= entry.expiresAt) return;\n",
    replace: "",
    tests: "test/core/table-revoke.test.ts",
  },
  {
    name: "a lock believed after a shorter lease may have been set",
    file: "src/client/detach.ts",
    find: 'if (leftMs !== undefined) lock.letGo(lostError("unknown", keys));',
    replace: "",
    tests: "test/client/detach.test.ts",
  },
  {
    name: "a detached lease shortened without moving its end in the schedule",
    file: "src/core/leases.ts",
    find: "    this.remove(entry);\n    entry.expiresAt = until;\n    this.add(entry);",
    replace: "    entry.expiresAt = until;",
    tests: "test/core/table-revoke.test.ts",
  },
  {
    name: "the deadline counted from the answer",
    file: "src/client/engine.ts",
    find: 'this.#apply(tracked, { type: "answered", call, sentAt, answer }, now);',
    replace: 'this.#apply(tracked, { type: "answered", call, sentAt: now, answer }, now);',
  },
  {
    name: "a look that extends belief",
    file: "src/core/claim-state.ts",
    find: "by.sentAt + 0.9 * left;",
    replace: "by.sentAt + 0.9 * terms.ttlMs;",
  },
  {
    name: "a lease believed to its last moment",
    file: "src/core/claim-state.ts",
    find: "by.sentAt + 0.9 * left;",
    replace: "by.sentAt + 1.05 * left;",
  },
  {
    name: "a push that lengthens the lease",
    file: "src/core/pending.ts",
    find: "return grant(state.talk, answer, state.deadline, dueAt, false, now, terms);",
    replace: "return grant(state.talk, answer, now + 0.9 * terms.ttlMs, dueAt, false, now, terms);",
  },
  {
    name: "a grant whose lease is over when it is answered",
    file: "src/core/pending.ts",
    find: "if (now >= deadline) return end({ ...state, talk }, TOO_LATE);",
    replace: "",
  },
  {
    name: "a taken up lock confirmed by an answer whose lease is over",
    file: "src/core/held.ts",
    find: "if (now >= deadline) return",
    replace: "if (now < 0) return",
  },
  {
    name: "a first answer from before a sleep that counts as if all was granted that was asked for",
    file: "src/core/claim-state.ts",
    find: "isFirst ? state.deadline - 0.9 * (terms.ttlMs - left) : state.deadline",
    replace: "state.deadline",
  },
  {
    name: "a grant believed before the clocks were looked at",
    file: "src/client/engine.ts",
    find: 'if (answer.state === "held") this.elapsed(now);',
    replace: "",
    tests: "test/client/late-grants.test.ts",
  },
  {
    name: "several keys taken up as one lock although one of them is lost again",
    file: "src/client/attach.ts",
    find: "if (lost !== undefined) {",
    replace: "if (tenures.length === 0 && lost !== undefined) {",
    tests: "test/client/late-grants.test.ts",
  },
  {
    name: "several keys given as one lock although one of them is lost again",
    file: "src/client/acquire.ts",
    find: "tenures.every(({ isHeld }) => isHeld)",
    replace: "tenures.length > 0",
    tests: "test/client/late-grants.test.ts",
  },
  {
    name: "a sleep of the machine that goes unnoticed",
    file: "src/core/held.ts",
    find: "const deadline = state.deadline - byMs;",
    replace: "const deadline = state.deadline;",
  },
  {
    name: "an answer from before a sleep that takes the doubt away",
    file: "src/core/held.ts",
    find: 'event.call <= state.talk.sleptAfter && answer.state !== "none"',
    replace: 'event.call < 0 && answer.state !== "none"',
  },
  {
    name: "a sleep that the wall clock hides",
    file: "src/client/clock-watch.ts",
    find: "const UPTIME_EACH_MS = 10;",
    replace: "const UPTIME_EACH_MS = 1e9;",
    tests: "test/client/time.test.ts",
  },
  {
    name: "a place whose deadline is put off",
    file: "src/core/pending.ts",
    find: "if (!terms.endures || state.talk.failures > 0) return",
    replace: "if (state.talk.failures > 0) return",
  },
  {
    name: '"none" taken for a hiccup',
    file: "src/core/held.ts",
    find: 'return lose(settled, answer.state === "none" ? (answer.reason ?? "unknown") : "unknown", now, terms);',
    replace: "return { state: settled, effects: NOTHING };",
  },
  // --- a store that grants nothing new for a while
  {
    name: "a key that nobody has told of yet is called busy while the server recovers",
    file: "src/server/keeper.ts",
    find: "this.reclaiming && !claim.wait && this.table.fits(claim)",
    replace: "this.reclaiming && claim.wait && this.table.fits(claim)",
    tests: "test/server/paused.test.ts",
  },
  {
    name: "a key that is known to be held is called unknown while the server recovers",
    file: "src/server/keeper.ts",
    find: "this.reclaiming && !claim.wait && this.table.fits(claim)",
    replace: "this.reclaiming && !claim.wait",
    tests: "test/server/paused.test.ts",
  },
  {
    name: "tryAcquire() takes a pause of the store for busy",
    file: "src/client/key-lane.ts",
    find: "if (pause === undefined) return this.#timeOut(request, 0);",
    replace: "if (pause === undefined || request.quiet) return this.#timeOut(request, 0);",
    tests: "test/drivers/server-unix.test.ts",
  },
  {
    name: "a majority that takes pauses of its members for busy",
    file: "src/drivers/quorum/round.ts",
    find: "if (wanted <= 0 || this.#busy > this.#without) return undefined;",
    replace: "if (wanted <= 0 || this.#busy >= 0) return undefined;",
    tests: "test/conformance/paused-stores.test.ts",
  },
  {
    name: "a majority that takes busy members for a pause",
    file: "src/drivers/quorum/round.ts",
    find: "if (wanted <= 0 || this.#busy > this.#without) return undefined;",
    replace: "if (wanted <= 0) return undefined;",
    tests: "test/conformance/paused-stores.test.ts",
  },
  {
    name: "a majority that tells a pause before those who could call the key busy have answered",
    file: "src/drivers/quorum/round.ts",
    find: "return this.#busy + unanswered > this.#without;",
    replace: "return this.#busy + unanswered < 0;",
    tests: "test/conformance/paused-stores.test.ts",
  },
  {
    name: "a majority that waits, beside a pause, for answers that cannot make the key busy",
    file: "src/drivers/quorum/round.ts",
    find: "return this.#busy + unanswered > this.#without;",
    replace: "return unanswered > 0;",
    tests: "test/quorum/round.test.ts",
  },
  {
    name: "a majority that waits, beside a pause, for a member that has failed",
    file: "src/drivers/quorum/round.ts",
    find: "- this.#absent - this.errors.length;",
    replace: "- this.#absent;",
    tests: "test/quorum/round.test.ts",
  },
  // --- asking and leaving
  {
    name: "a nudge dropped while a call is under way",
    file: "src/core/talk.ts",
    find: "return { ...talk, again: true };",
    replace: "return talk;",
  },
  {
    name: "no tombstone after an unanswered claim",
    file: "src/core/table.ts",
    find: "if (unanswered !== undefined) this.bury(",
    replace: 'if (unanswered !== undefined && unanswered === "session") this.bury(',
  },
  {
    name: "an unanswered claim that the client forgets",
    file: "src/core/talk.ts",
    find: "const unanswered = talk.unanswered || talk.asks;",
    replace: "const unanswered = false;",
  },
  {
    name: 'a repeated release\'s "was not there" believed',
    file: "src/client/releases.ts",
    find: "leaving.done(leaving.attempts === 1 || wasThere === true ? wasThere : null);",
    replace: "leaving.done(wasThere);",
  },
  {
    name: "a release beside another that is not counted",
    file: "src/client/engine.ts",
    find: "if (tracked.leaving !== null) tracked.leaving.attempts++;",
    replace: "",
  },
  {
    name: "a release that is sent once and never again",
    file: "src/client/releases.ts",
    find: "if (this.#stopped || (now >= one.giveUpAt",
    replace: "if (this.#stopped || (now >= 0",
  },
  {
    name: "release before the body has ended",
    file: "src/core/held.ts",
    find: 'return { state: { at: "lost", reason, forgetAt: now + terms.ttlMs, unanswered }, effects: ["lose"] };',
    replace:
      'return { state: { at: "lost", reason, forgetAt: now + terms.ttlMs, unanswered }, effects: ["lose", "release"] };',
  },
  {
    name: "a late answer that releases what was detached",
    file: "src/client/engine.ts",
    find: "if (tracked.forgotten) return;",
    replace: "",
  },
  {
    name: "an aborted request that leaves its claim behind",
    file: "src/client/key-lane.ts",
    find: "if (tracked !== null) this.host.engine.leave(tracked);",
    replace: 'if (tracked !== null && tracked.state.at === "asking") this.host.engine.leave(tracked);',
  },
  {
    name: "a wait that ends early",
    file: "src/client/request.ts",
    find: "this.startedAt + waitMs",
    replace: "this.startedAt + waitMs * 0.99",
  },
  {
    name: "a wait that is never ended",
    file: "src/client/request.ts",
    find: "if (waitMs > 0 && waitMs < Number.POSITIVE_INFINITY)",
    replace: "if (waitMs > 100 && waitMs < Number.POSITIVE_INFINITY)",
  },
  // --- lines and tokens
  {
    name: "token runs handed on beside shared holds",
    file: "src/client/lane-host.ts",
    find: "if (this.settings.handoffs === 1 || !isExclusive(target.holds)) return",
    replace: "if (this.settings.handoffs === 1) return",
  },
  {
    name: "a run handed on after it is spent",
    file: "src/core/lane.ts",
    find: "if (goesOn && this.#left > 0)",
    replace: "if (goesOn)",
  },
  {
    name: "local holders with the same token",
    file: "src/core/lane.ts",
    find: "return this.#nextToken++;",
    replace: "return this.#nextToken;",
  },
  {
    name: "`last` forgotten early",
    file: "src/core/mint.ts",
    find: "if (line.last < this.#clock) {",
    replace: "if (line.last < Number.POSITIVE_INFINITY) {",
  },
  {
    name: "a run of which only the first token is remembered",
    file: "src/core/mint.ts",
    find: "line.last = token + claim.tokens - 1;",
    replace: "line.last = token;",
  },
  {
    name: "all keys of a claim placed at once",
    file: "src/core/seating.ts",
    find: "if (this.#paused || !line.admit(seat)) return;",
    replace: "if (this.#paused || !line.admit(seat)) continue;",
  },
  {
    name: "a waiter's turn taken by one who was led on to its line",
    file: "src/core/seating.ts",
    find: "if (this.#paused || !line.admit(seat)) return;",
    replace: "if (this.#paused || line.admitNext() !== seat) return;",
  },
  {
    name: "a claim that lost one of its lines kept",
    file: "src/core/table.ts",
    find: "for (let loser = line.overfull(); loser !== null; loser = line.overfull()) this.#lose(loser.entry);",
    replace: "for (let loser = line.overfull(); loser !== null; loser = line.overfull()) line.remove(loser);",
  },
  {
    name: "a reader that overtakes a waiting writer",
    file: "src/core/seats.ts",
    find: "return this.frontier === this.seats.last && fits(this.used, hold);",
    replace: "return fits(this.used, hold);",
  },
  {
    name: "one permit too many",
    file: "src/core/line.ts",
    find: "return used + place.permits <= place.limit;",
    replace: "return used + place.permits <= place.limit + 1;",
  },
  {
    name: "a revoked place that is given away at once",
    file: "src/core/table.ts",
    find: "if (removed) this.#remove(entry);",
    replace: "if (removed || true) this.#remove(entry);",
  },
  {
    name: "a lease that ends early at the store",
    file: "src/core/leases.ts",
    find: "if (entry.expiresAt <= now) return entry;",
    replace: "if (entry.expiresAt <= now + 100) return entry;",
  },
  // --- the server's restart
  {
    name: "the clean table used twice",
    file: "src/server/opening.ts",
    find: "await disk.begin({ state, journal",
    replace: "await disk.begin({ state: (await disk.load()).state ?? state, journal",
  },
  {
    name: "the longest lease written late",
    file: "src/server/durability.ts",
    find: "if (top > ledger.bound || lease > ledger.longestMs) {",
    replace: "if (top > ledger.bound) {",
    tests: "test/server/restart.test.ts",
  },
  {
    name: "a reclaimed hold behind a waiter",
    file: "src/core/seating.ts",
    find: "seat.line.addAdmitted(seat);",
    replace: "seat.line.add(seat);",
  },
  {
    name: "tokens not above the old bound",
    file: "src/server/keeper.ts",
    find: "Math.max(tokensBelow(plan), micros)",
    replace: "micros",
  },
  {
    name: "grants while a restarted server reclaims",
    file: "src/server/keeper.ts",
    find: "    this.table.pause();\n  }\n\n  /** Puts a claim back that comes from disk.",
    replace: "  }\n\n  /** Puts a claim back that comes from disk.",
  },
  {
    name: "clients forgotten by a second crash",
    file: "src/server/opening.ts",
    find: "strangers: recovery.awaited === null",
    replace: "strangers: false",
  },
  {
    name: "a session of the journal that counts as noted",
    file: "src/server/opening.ts",
    find: "sessionOf({ id, ...nobody })",
    replace: "Object.assign(sessionOf({ id, ...nobody }), { noted: true })",
  },
  {
    name: "a renewal answered before its claim's own write",
    file: "src/server/durability.ts",
    find: "return this.#writing.get(id) ?? null;",
    replace: "return null;",
    tests: "test/server/behind-writes.test.ts",
  },
  {
    name: "a revoked hold that a new start does not hear of",
    file: "src/drivers/server/driver.ts",
    find: 'if (answer?.state === "held" && (reason === "revoked" || reason === "maxHold")) return;',
    replace: "if (reason === undefined && answer === undefined) return;",
  },
  {
    name: "a sleep that a new start does not hear of",
    file: "src/drivers/server/known.ts",
    find: "return byMs > DRIFT_MS ? byMs : 0;",
    replace: "return byMs > DRIFT_MS ? 0 : 0;",
  },
  {
    name: "a new start of the server taken for the old one",
    file: "src/drivers/server/driver.ts",
    find: "if (this.#told === hello.start) return this.#notify(null);",
    replace: "if (this.#told !== null) return this.#notify(null);",
  },
  {
    name: "a reclaim that a broken connection interrupted taken for answered",
    file: "src/drivers/server/driver.ts",
    find: "    this.#told = null;\n",
    replace: "    this.#told = hello.start;\n",
    tests: "test/server/restart.test.ts",
  },
  {
    name: "waiters lined up as they come back, not as they had arrived",
    file: "src/server/reclaiming.ts",
    find: "table.claim({ ...claim, wait: true }, session, now, micros, was.arrival, by);",
    replace: "table.claim({ ...claim, wait: true }, session, now, micros);",
    tests: "test/server/restart.test.ts",
  },
  {
    name: "a session's claim given up although its session lives",
    file: "src/client/releases.ts",
    find: 'now >= one.giveUpAt && one.claim.ttlMs !== "session"',
    replace: "now >= one.giveUpAt",
  },
  {
    name: "a push of an earlier start believed",
    file: "src/protocol/frames.ts",
    find: "if (whole[0] !== start) throw",
    replace: "if (whole[0] === undefined) throw",
    tests: "test/server/earlier-start.test.ts",
  },
  // --- the server under abuse
  {
    name: "claims that are told of after a restart bounded by nothing",
    file: "src/server/reclaiming.ts",
    find: '  if (!rule.fits(claim, was.state === "held")) return;\n',
    replace: "",
    tests: "test/server/reclaim-limits.test.ts",
  },
  {
    name: "claims that are told of in one frame counted behind it",
    file: "src/server/reclaiming.ts",
    find: "  if (entry !== undefined) rule.own(entry);\n",
    replace: "  if (entry === null) rule.own(entry);\n",
    tests: "test/server/reclaim-limits.test.ts",
  },
  {
    name: "waiters that keep a holder from coming back",
    file: "src/server/room.ts",
    find: "isHeld ? 2 * waitersPerKey : waitersPerKey",
    replace: "waitersPerKey",
    tests: "test/server/reclaim-limits.test.ts",
  },
  {
    name: "holders of a key that count nowhere if they did not wait",
    file: "src/server/room.ts",
    find: "return table.isFree(claim) ? this.#longLine(table, claim, this.#limits.waitersPerKey) : null;",
    replace: "return null;",
    tests: "test/server/limits-claims.test.ts",
  },
  {
    name: "a line that is answered in one go",
    file: "src/server/calls.ts",
    find: "if (this.isBusy && this.#hub.clock.now() >= until) return;",
    replace: "if (until < 0) return;",
    tests: "test/server/turns.test.ts",
  },
  {
    name: "a large frame that is answered in one go",
    file: "src/server/calls.ts",
    find: "if (items.length <= size || !this.#hub.backend.isOurs)",
    replace: "if (items.length <= 5_000 || size < 0)",
    tests: "test/server/turns.test.ts",
  },
  {
    name: "what comes behind a line that is not done answered before it",
    file: "src/server/link.ts",
    find: "this.#said = [...this.#said, ...lines];\n      return;",
    replace: "this.#said = [...lines, ...this.#said];\n      return;",
    tests: "test/server/turns.test.ts",
  },
  {
    name: "a session that has told all before the last of it stands",
    file: "src/server/calls.ts",
    find: "backend.reclaim(session, part, isLast && last);",
    replace: "backend.reclaim(session, part, last);",
    tests: "test/server/turns.test.ts",
  },
  {
    name: "a holder that is granted later not found by its token",
    file: "src/core/seats.ts",
    find: "this.#holders?.add(entry);",
    replace: "this.#holders?.remove(entry);",
  },
  {
    name: "a holder found by its token that has gone",
    file: "src/core/seats.ts",
    find: "      this.#holders?.remove(seat.entry);\n",
    replace: "",
  },
  {
    name: "a stranger of whichever address given up for a newcomer",
    file: "src/server/door.ts",
    find: "if (others.size < most || (others.size === most && number >= first)) continue;",
    replace: "if (first > 0 && number >= first) continue;",
    tests: "test/server/strangers.test.ts",
  },
  {
    name: "the newest of the strangers given up, who may be about to say hello",
    file: "src/server/door.ts",
    find: "return this.#strangers.get(near)?.keys().next().value ?? null;",
    replace: "return [...(this.#strangers.get(near)?.keys() ?? [])].at(-1) ?? null;",
    tests: "test/server/strangers.test.ts",
  },
  {
    name: "no room for a newcomer where strangers are many",
    file: "src/server/hub.ts",
    find: "if (full.oldest !== null && !this.#draining)",
    replace: "if (full.oldest !== null && this.#draining)",
    tests: "test/server/strangers.test.ts",
  },
  {
    name: "claims from before a restart held to bounds that are narrower now",
    file: "src/server/room.ts",
    find: "this.#former = widest(limits, former);",
    replace: "this.#former = former === limits ? former : limits;",
    tests: "test/server/reclaim-limits.test.ts",
  },
  {
    name: "a claim of many keys counted as one",
    file: "src/server/room.ts",
    find: "if (this.#keys + holds.length > claims)",
    replace: "if (this.#accounts.size + holds.length > claims)",
    tests: "test/server/limits-claims.test.ts test/server/reclaim-limits.test.ts",
  },
  // --- runs that outlive their wrappers and their server
  {
    name: "a run written down when its command works already",
    file: "src/cli/run-file.ts",
    find: "    renameSync(making, path);\n",
    replace: "    setTimeout(() => renameSync(making, path), 100);\n",
    tests: "test/cli/run-file.test.ts",
  },
  {
    name: "a command whose process id is not written down",
    file: "src/cli/run.ts",
    find: 'started: (pid) => file?.add("command", pid),',
    replace: "started: () => undefined,",
    tests: "test/cli/run-file.test.ts",
  },
  {
    name: "a command that does not inherit the lock of its run",
    file: "src/cli/run.ts",
    find: "...(file === null ? [] : [file.descriptor])",
    replace: "...(file === null ? [] : [])",
    tests: "test/cli/run-file.test.ts",
  },
  {
    name: "a server that does not restore what runs hold",
    file: "src/server/run-restoring.ts",
    find: "if (keeper.owned(saved.claim.id) === undefined)",
    replace: "if (keeper.owned(saved.claim.id) !== undefined)",
    tests: "test/server/runs.test.ts",
  },
  {
    name: "a run whose death the server does not look for",
    file: "src/server/session.ts",
    find: "session.run = session.local ? this.#runs.find(session.id) : null;",
    replace: "session.run = null;",
    tests: "test/server/runs.test.ts",
  },
  {
    name: "a run that began while no server was there, overlooked",
    file: "src/server/session.ts",
    find: "        this.found(session, session.run);\n",
    replace: "",
    tests: "test/server/runs.test.ts",
  },
  {
    name: "a stopped wrapper given up like a stopped program",
    file: "src/server/session.ts",
    find: 'if (isHere || life === "works" || life === "held") return now + againMs;',
    replace: 'if (isHere || life === "works") return now + againMs;',
    tests: "test/server/runs.test.ts",
  },
  {
    name: "all keys that wait for a run of which all is known",
    file: "src/server/run-restoring.ts",
    find: "filter((id) => !named.has(id))",
    replace: "filter((id) => named.has(id) || id !== undefined)",
    tests: "test/server/runs.test.ts",
  },
  {
    name: "a damaged file of a run believed to name nothing",
    file: "src/server/run-files.ts",
    find: "      unreadable = true;\n",
    replace: "",
    tests: "test/server/run-files.test.ts",
  },
  {
    name: "the lease of a run without its wrapper left to end",
    file: "src/server/session.ts",
    find: 'if (isHere || life === "works") keepLeases(this.#backend, session, now);',
    replace: 'if (isHere && life !== "works") keepLeases(this.#backend, session, now);',
    tests: "test/server/runs.test.ts",
  },
  {
    name: "a process taken for another that was given its id",
    file: "src/server/processes.ts",
    find: 'if (fields[START_FIELD - 3] !== pidStart) return "gone";',
    replace: "",
    tests: "test/server/run-files.test.ts",
  },
  {
    name: "a run without living processes over, whoever has its lock",
    file: "src/server/run-files.ts",
    find: "record?.locked === false ?",
    replace: "record !== null ?",
    tests: "test/server/run-files.test.ts",
  },
  {
    name: "a run without its lock over, whatever process lives",
    file: "src/server/run-files.ts",
    find: 'return living.includes("command") || (living',
    replace: "return (living",
    tests: "test/server/run-files.test.ts",
  },
  {
    name: "a run that its watchdog has ended taken for one that works",
    file: "src/server/run-files.ts",
    find: "  if (ended) return false;\n",
    replace: "",
    tests: "test/server/run-files.test.ts",
  },
  {
    name: "claims of a run that its watchdog has ended restored",
    file: "src/server/run-files.ts",
    find: "record === null || record.ended ? []",
    replace: "record === null ? []",
    tests: "test/server/run-files.test.ts",
  },
  {
    name: "a watchdog without a command taken for work, although its wrapper lives",
    file: "src/server/run-files.ts",
    find: ' || !living.includes("wrapper");',
    replace: ' || living.includes("wrapper");',
    tests: "test/server/run-files.test.ts",
  },
  {
    name: "a watchdog that does not say that it has ended its run",
    file: "src/cli/guard.ts",
    find: "    silent=yes\n",
    replace: "",
    tests: "test/cli/silent-wrapper.test.ts",
  },
  {
    name: "a watchdog that replaces another and is not told when the lease ends",
    file: "src/cli/relief.ts",
    find: "if (leaseEndsAt !== null) next.lease(",
    replace: "if (leaseEndsAt === 0) next.lease(",
    tests: "test/cli/silent-wrapper.test.ts",
  },
  {
    name: "a command that nobody had time to name, overlooked",
    file: "src/server/run-files.ts",
    find: "return this.#unnamed.length > 0;",
    replace: "return false;",
    tests: "test/server/run-files.test.ts",
  },
];
