import { expect, test } from "vitest";
import { createRepeatCommand } from "../../../../src/cli/commands/torture/repeat-command.ts";

const SETTINGS = { choice: null, faults: ["kill", "pause"], ms: 20_000, seed: 3 } as const;

test("of a store that is started", () => {
  expect(createRepeatCommand(SETTINGS, "redis", null)).toEqual({
    command: "holdfast torture --start redis --faults kill,pause --time 20s --seed 3",
    note: null,
  });
});

test("of a url: without user and password, which must be given again", () => {
  const choice = { url: "redis://user:hunter2@127.0.0.1:6379/0" };
  const { command, note } = createRepeatCommand({ ...SETTINGS, choice }, null, null);
  expect(command).toBe("holdfast torture --url redis://127.0.0.1:6379/0 --faults kill,pause --time 20s --seed 3");
  expect(note).toContain("without user and password");
  expect(createRepeatCommand({ ...SETTINGS, choice: { url: "redis://127.0.0.1" } }, null, null).note).toBeNull();
});

test("of a driver, of a rival, without faults, and with a time that has no whole seconds", () => {
  const choice = { driver: "/some where/it's.js", origin: "--driver" };
  expect(createRepeatCommand({ ...SETTINGS, choice, faults: [], ms: 1_500 }, null, "/r.js").command).toBe(
    `holdfast torture --driver '/some where/it'\\''s.js' --rival /r.js --faults none --time 1500ms --seed 3`,
  );
});
