// The file of a run, seen by its own command: src is called directly, so that a fault put into it is noticed.

import { readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { parseRunOptions } from "../../../src/cli/commands/run/options.ts";
import { runCommand } from "../../../src/cli/commands/run/run.ts";
import { decodeReference } from "../../../src/protocol/lock-reference.ts";
import { decodeRunRecord } from "../../../src/server/runs/run-file-format.ts";
import { cleanUpAfterEach, createTemporaryDirectory, startServer } from "../../support/server-fixture.ts";

cleanUpAfterEach();

/** First copies the file; then waits until it contains its own process id, and tries the lock. */
const PRINT_RECORD = `
cp "$1"/*.run "$2/first" || exit 3
until grep -q '"role":"command","pid":'$$, "$1"/*.run; do [ $((n += 1)) -gt 200 ] && exit 4; sleep 0.02; done
cp "$1"/*.run "$2/then"
flock -n -s "$1"/*.run true && exit 5
readlink /proc/$$/fd/* | grep -q '[.]run$' || exit 6
echo "$HOLDFAST_REFERENCE" >"$2/reference"
`;

async function runAndReadRecord(flags: Parameters<typeof parseRunOptions>[1], keys: readonly string[] = ["k"]) {
  const server = await startServer();
  const folder = createTemporaryDirectory();
  const runsIn = join(server.dir, "state", "runs");
  const url = server.addresses[0] as string;
  const options = parseRunOptions(keys, { url, quiet: true, ...flags }, [
    "sh",
    "-c",
    PRINT_RECORD,
    "sh",
    runsIn,
    folder,
  ]);
  return { code: await runCommand(options), runsIn, read: (name: string) => readFileSync(join(folder, name), "utf8") };
}

test.each([
  ["exclusive", {}, ["k"]],
  ["shared", { shared: true }, ["k"]],
  ["permits", { permits: "2/3" }, ["k"]],
  ["several keys with a lease", { ttl: "10s" }, ["b", "a"]],
  ["not to be ended when it is lost", { onLost: "ignore" }, ["k"]],
] as const)(
  "before a command runs, its file names the locks and the other processes, then the command itself; afterwards it is gone (%s)",
  async (_, flags, keys) => {
    const { code, runsIn, read } = await runAndReadRecord(flags, keys);
    expect(code).toBe(0);
    const first = decodeRunRecord(read("first"));
    const laterRecord = decodeRunRecord(read("then"));
    const [held] = decodeReference(read("reference"));
    expect(first?.claims).toEqual([{ ...held, claim: { ...held?.claim, label: first?.label } }]);
    expect(first?.locked).toBe(true);
    const roles = laterRecord?.processes.map(({ role }) => role);
    expect(roles).toEqual("onLost" in flags ? ["wrapper", "command"] : ["wrapper", "watchdog", "command"]);
    // its own line may be there from the beginning, those of the others must
    const [otherRoles, firstRoles] = [roles?.slice(0, -1) ?? [], first?.processes.map(({ role }) => role) ?? []];
    expect(firstRoles.slice(0, otherRoles.length)).toEqual(otherRoles);
    expect(laterRecord?.processes[0]?.pid).toBe(process.pid);
    for (const { start } of laterRecord?.processes ?? []) expect(start).toMatch(/^\d+$/);
    expect(readdirSync(runsIn)).toEqual([]);
  },
);

test("the directory and the file are accessible to their owner only", async () => {
  const server = await startServer();
  const folder = createTemporaryDirectory();
  const runsIn = join(server.dir, "state", "runs");
  const command = ["sh", "-c", `stat -c %a "$1" "$1"/*.run >"$2/modes"`, "sh", runsIn, folder];
  const options = parseRunOptions(["k"], { url: server.addresses[0] as string }, command);
  expect(await runCommand(options)).toBe(0);
  expect(readFileSync(join(folder, "modes"), "utf8")).toBe("700\n600\n");
  expect(statSync(runsIn).mode & 0o777).toBe(0o700);
});

test("when the file cannot be written the command is not started, and nothing stays held", async () => {
  const server = await startServer();
  rmSync(join(server.dir, "state", "runs"), { recursive: true });
  const url = server.addresses[0] as string;
  const folder = createTemporaryDirectory();
  const options = parseRunOptions(["k"], { url }, ["touch", join(folder, "ran")]);
  await expect(runCommand(options)).rejects.toMatchObject({
    kind: "output",
    code: 74,
    message: `cannot record the lock of this run in ${join(server.dir, "state", "runs")} (ENOENT; \`holdfast run\` needs this directory of its server at the same path, not only the socket); nothing was run`,
  });
  expect(readdirSync(folder)).toEqual([]);
  expect(server.stats().claims).toBe(0);
});
