// Curator's InterProcessMutex and our locks on one path: real contenders of both, each with a session of its own.

import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { ZooKeeper } from "../../src/drivers/zookeeper/client/zookeeper.ts";
import type { Register, RegisterOptions } from "../support/curator/register.ts";
import { openRegister } from "../support/curator/register.ts";
import type { Crew } from "../support/services/curator.ts";
import { curatorCrew, ourCrew } from "../support/services/curator.ts";
import type { ZooKeeperServer } from "../support/services/zookeeper.ts";
import { startZooKeeper } from "../support/services/zookeeper.ts";
import { until } from "../support/wait-for.ts";

const WITHIN = 20_000;
const SESSION_MS = 2_000;
/** Of each contender. */
const LAPS = process.env.HOLDFAST_LONG === "1" ? 250 : 50;
const OURS = ["ours-1", "ours-2", "ours-3", "ours-4"];
const THEIRS = ["theirs-1", "theirs-2", "theirs-3", "theirs-4"];
let server: ZooKeeperServer;
let zk: ZooKeeper;
const open: AsyncDisposable[] = [];

beforeAll(async () => {
  server = await startZooKeeper();
  zk = new ZooKeeper({ servers: [server.address] });
  await zk.open();
}, 60_000);

afterAll(async () => {
  await zk.close();
  await server[Symbol.asyncDispose]();
});

afterEach(async () => {
  await Promise.all(open.splice(0).map((one) => one[Symbol.asyncDispose]()));
});

type Scene = { readonly register: Register; readonly ours: Crew; readonly theirs: Crew };

async function scene(options?: RegisterOptions): Promise<Scene> {
  const register = await openRegister(options);
  const { host, port } = server.address;
  const terms = { server: `${host}:${port}`, sessionMs: SESSION_MS, registerPort: register.port };
  const [ours, theirs] = await Promise.all([ourCrew(terms), curatorCrew(terms)]);
  open.push(ours, theirs, register);
  return { register, ours, theirs };
}

/** Numbers of a path's nodes, the lowest first, each with its name. */
async function lineOf(path: string): Promise<{ readonly name: string; readonly number: number }[]> {
  const { names } = await zk.children(path).catch(() => ({ names: [] as readonly string[] }));
  return names.map((name) => ({ name, number: Number(name.slice(-10)) })).sort((a, b) => a.number - b.number);
}

async function placesAt(path: string, count: number): Promise<void> {
  const isSo = async (): Promise<boolean> => (await lineOf(path)).length === count;
  await until(isSo, { within: WITHIN, what: `${count} places` });
}

/** Whoever enters must have the lowest node, and a higher one than whoever entered before. */
function orderOf(path: string): (name: string) => Promise<string | null> {
  let last = -1;
  return async (name) => {
    const [first] = await lineOf(path);
    if (first === undefined) return `${name} entered, and no node is there`;
    const { data } = await zk.get(`${path}/${first.name}`);
    if (!data.toString().includes(name)) return `${name} entered, but first is ${data}`;
    const before = last;
    last = first.number;
    return first.number > before ? null : `${name} entered with ${first.number} after ${before}`;
  };
}

test("4 of ours and 4 of Curator's on one path: nobody inside beside another, all in order of arrival, nobody starved", async () => {
  const path = "/contended";
  const { register, ours, theirs } = await scene({ witness: orderOf(path) });
  for (const name of OURS) ours.tell(`open ${name} mutex ${path}`);
  for (const name of THEIRS) theirs.tell(`open ${name} mutex ${path}`);
  for (const name of OURS) ours.tell(`laps ${name} ${LAPS} 1`);
  for (const name of THEIRS) theirs.tell(`laps ${name} ${LAPS} 1`);
  await Promise.all([
    ...OURS.map((name) => ours.told(`${name} done`)),
    ...THEIRS.map((name) => theirs.told(`${name} done`)),
  ]);
  expect(register.faults).toEqual([]);
  expect(register.entered).toHaveLength(8 * LAPS);
  const turns = register.entered.filter((name, at) => at > 0 && name[0] !== register.entered[at - 1]?.[0]).length;
  expect(turns, "ours and theirs had met").toBeGreaterThan(LAPS);
  console.log(`figure: ${register.entered.length} grants, ${turns} of them from one kind to the other`);
}, 120_000);

test("ours and Curator's are granted in the order in which they came", async () => {
  const path = "/ordered";
  const { ours, theirs } = await scene();
  const order = [0, 1, 2, 3].flatMap((n) => [
    { crew: ours, name: OURS[n] as string },
    { crew: theirs, name: THEIRS[n] as string },
  ]);
  for (const [at, { crew, name }] of order.entries()) {
    crew.tell(`open ${name} mutex ${path}`);
    crew.tell(`acquire ${name}`);
    await placesAt(path, at + 1);
  }
  for (const [at, { crew, name }] of order.entries()) {
    await crew.told(`${name} held`);
    const others = order.slice(at + 1).filter((one) => one.crew.hasTold(`${one.name} held`));
    expect(others, `while ${name} holds`).toEqual([]);
    crew.tell(`release ${name}`);
  }
}, 60_000);

test.each(["ours", "theirs"] as const)(
  "when %s are killed, holding and waiting, the others go on, and nobody is inside twice",
  async (killed) => {
    const path = `/killed-${killed}`;
    const { register, ours, theirs } = await scene();
    const [dying, living] = killed === "ours" ? [ours, theirs] : [theirs, ours];
    for (const name of ["dying-1", "dying-2"]) dying.tell(`open ${name} mutex ${path}`);
    for (const name of ["living-1", "living-2"]) living.tell(`open ${name} mutex ${path}`);
    for (const name of ["dying-1", "dying-2"]) dying.tell(`laps ${name} 1000 5`);
    for (const name of ["living-1", "living-2"]) living.tell(`laps ${name} 1000 5`);
    await until(() => new Set(register.entered).size === 4, { within: WITHIN, what: "a turn for everybody" });
    await until(() => [...register.inside].some((name) => name.startsWith("dying")), {
      within: WITHIN,
      what: "a holder to kill",
    });
    await dying.kill();
    const before = register.entered.length;
    await until(() => register.entered.length >= before + 20, { within: WITHIN, what: "the living to go on" });
    expect(register.faults).toEqual([]);
    expect(new Set(register.entered.slice(before))).toEqual(new Set(["living-1", "living-2"]));
    await living.kill();
  },
  60_000,
);

test("Curator's Revoker asks a holder of ours to go, and ours asks Curator's", async () => {
  const path = "/revoked";
  const { ours, theirs } = await scene();
  ours.tell(`open us mutex ${path}`);
  theirs.tell(`open them mutex ${path}`);
  ours.tell("revocable us");
  theirs.tell("revocable them");
  ours.tell("acquire us");
  await ours.told("us held");
  const [node] = await lineOf(path);
  theirs.tell(`revoke them ${path}/${node?.name}`);
  await theirs.told("them revoked");
  await ours.told("us asked");
  await ours.told("us released");
  theirs.tell("acquire them");
  await theirs.told("them held");
  ours.tell("revoke us");
  await ours.told("us revoked");
  await theirs.told("them asked");
  await theirs.told("them released");
  ours.tell("acquire us");
  await ours.told("us held", 2);
}, 60_000);

test("who gives up leaves no node behind, of either kind", async () => {
  const path = "/given-up";
  const { ours, theirs } = await scene();
  ours.tell(`open us mutex ${path}`);
  theirs.tell(`open them mutex ${path}`);
  ours.tell("acquire us");
  await ours.told("us held");
  theirs.tell("try them 200");
  await theirs.told("them busy");
  await placesAt(path, 1);
  ours.tell("release us");
  theirs.tell("acquire them");
  await theirs.told("them held");
  ours.tell("try us 200");
  await ours.told("us busy");
  await placesAt(path, 1);
  theirs.tell("release them");
  await placesAt(path, 0);
}, 60_000);
