// Curator's InterProcessMutex and Holdfast's locks on one path: real contenders of both, each with its own session.

import { expect, test } from "vitest";
import { until } from "../../../src/testing/until.ts";
import { curatorFixture } from "../../support/curator/curator-fixture.ts";

const fixture = curatorFixture();
const TIMEOUT_MS = 20_000;
/** Of each contender. */
const CYCLES = process.env.HOLDFAST_LONG === "1" ? 250 : 50;
/** In which all cycles are done, however busy the machine is. */
const LOAD_MS = 100 * 8 * CYCLES;
const HOLDFAST_NAMES = ["ours-1", "ours-2", "ours-3", "ours-4"];
const CURATOR_NAMES = ["theirs-1", "theirs-2", "theirs-3", "theirs-4"];
/** The entering holder must have the lowest node, and a higher one than the previous holder. */
function grantOrder(path: string): (name: string) => Promise<string | null> {
  let last = -1;
  return async (name) => {
    const [first] = await fixture.listQueue(path);
    if (first === undefined) return `${name} entered, and no node is there`;
    const { data } = await fixture.observer().get(`${path}/${first.name}`);
    if (!data.toString().includes(name)) return `${name} entered, but first is ${data}`;
    const before = last;
    last = first.number;
    return first.number > before ? null : `${name} entered with ${first.number} after ${before}`;
  };
}

test(
  "4 Holdfast and 4 Curator processes on one path: no two holders overlap, all in order of arrival, none starved",
  async () => {
    const path = "/contended";
    const { register, holdfast, curator } = await fixture.startContest({ onEnter: grantOrder(path) });
    for (const name of HOLDFAST_NAMES) holdfast.send(`open ${name} mutex ${path}`);
    for (const name of CURATOR_NAMES) curator.send(`open ${name} mutex ${path}`);
    for (const name of HOLDFAST_NAMES) holdfast.send(`cycles ${name} ${CYCLES} 1`);
    for (const name of CURATOR_NAMES) curator.send(`cycles ${name} ${CYCLES} 1`);
    await Promise.all([
      ...HOLDFAST_NAMES.map((name) => holdfast.waitForReport(`${name} done`, 1, LOAD_MS)),
      ...CURATOR_NAMES.map((name) => curator.waitForReport(`${name} done`, 1, LOAD_MS)),
    ]);
    expect(register.faults).toEqual([]);
    expect(register.entries).toHaveLength(8 * CYCLES);
    const turns = register.entries.filter(
      (name, index) => index > 0 && name[0] !== register.entries[index - 1]?.[0],
    ).length;
    expect(turns, "ours and theirs had met").toBeGreaterThan(CYCLES);
    console.log(`figure: ${register.entries.length} grants, ${turns} of them from one kind to the other`);
  },
  LOAD_MS + 60_000,
);

test("Holdfast's and Curator's claims are granted in the order of their arrival", async () => {
  const path = "/ordered";
  const { holdfast, curator } = await fixture.startContest();
  const order = [0, 1, 2, 3].flatMap((n) => [
    { client: holdfast, name: HOLDFAST_NAMES[n] as string },
    { client: curator, name: CURATOR_NAMES[n] as string },
  ]);
  for (const [index, { client, name }] of order.entries()) {
    client.send(`open ${name} mutex ${path}`);
    client.send(`acquire ${name}`);
    await fixture.waitForNodes(path, index + 1);
  }
  for (const [index, { client, name }] of order.entries()) {
    await client.waitForReport(`${name} held`);
    const earlyHolders = order
      .slice(index + 1)
      .filter((contender) => contender.client.hasReported(`${contender.name} held`));
    expect(earlyHolders, `while ${name} holds`).toEqual([]);
    client.send(`release ${name}`);
  }
}, 60_000);

/** One kind is killed, holding and waiting. */
async function expectOthersToContinue(victim: "ours" | "theirs"): Promise<void> {
  const path = `/killed-${victim}`;
  const { register, holdfast, curator } = await fixture.startContest();
  const [dying, living] = victim === "ours" ? [holdfast, curator] : [curator, holdfast];
  for (const name of ["dying-1", "dying-2"]) dying.send(`open ${name} mutex ${path}`);
  for (const name of ["living-1", "living-2"]) living.send(`open ${name} mutex ${path}`);
  for (const name of ["dying-1", "dying-2"]) dying.send(`cycles ${name} 1000 5`);
  for (const name of ["living-1", "living-2"]) living.send(`cycles ${name} 1000 5`);
  await until(() => new Set(register.entries).size === 4, { within: TIMEOUT_MS, what: "a turn for everybody" });
  await until(() => [...register.holders].some((name) => name.startsWith("dying")), {
    within: TIMEOUT_MS,
    what: "a holder to kill",
  });
  await dying.kill();
  const before = register.entries.length;
  await until(() => register.entries.length >= before + 20, {
    within: TIMEOUT_MS,
    what: `the living to go on without ${victim}`,
  });
  expect(register.faults).toEqual([]);
  expect(new Set(register.entries.slice(before))).toEqual(new Set(["living-1", "living-2"]));
  await living.kill();
}

// at the same time, since both wait for the end of a session
test("when ours, or theirs, are killed, holding and waiting, the others continue, and no two holders overlap", async () => {
  await Promise.all([expectOthersToContinue("ours"), expectOthersToContinue("theirs")]);
}, 60_000);

test("Curator's Revoker asks a Holdfast holder to release, and Holdfast asks Curator's", async () => {
  const path = "/revoked";
  const { holdfast, curator } = await fixture.startContest();
  holdfast.send(`open us mutex ${path}`);
  curator.send(`open them mutex ${path}`);
  holdfast.send("revocable us");
  curator.send("revocable them");
  holdfast.send("acquire us");
  await holdfast.waitForReport("us held");
  const [node] = await fixture.listQueue(path);
  curator.send(`revoke them ${path}/${node?.name}`);
  await curator.waitForReport("them revoked");
  await holdfast.waitForReport("us asked");
  await holdfast.waitForReport("us released");
  curator.send("acquire them");
  await curator.waitForReport("them held");
  holdfast.send("revoke us");
  await holdfast.waitForReport("us revoked");
  await curator.waitForReport("them asked");
  await curator.waitForReport("them released");
  holdfast.send("acquire us");
  await holdfast.waitForReport("us held", 2);
  expect(await fixture.listQueue(path)).toHaveLength(1);
}, 60_000);

test("a cancelled wait leaves no node behind, of either kind", async () => {
  const path = "/given-up";
  const { holdfast, curator } = await fixture.startContest();
  holdfast.send(`open us mutex ${path}`);
  curator.send(`open them mutex ${path}`);
  holdfast.send("acquire us");
  await holdfast.waitForReport("us held");
  curator.send("try them 200");
  await curator.waitForReport("them busy");
  await fixture.waitForNodes(path, 1);
  holdfast.send("release us");
  curator.send("acquire them");
  await curator.waitForReport("them held");
  holdfast.send("try us 200");
  await holdfast.waitForReport("us busy");
  await fixture.waitForNodes(path, 1);
  curator.send("release them");
  await fixture.waitForNodes(path, 0);
  expect(await fixture.listQueue(path)).toEqual([]);
}, 60_000);
