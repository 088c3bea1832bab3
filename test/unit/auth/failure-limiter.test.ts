import { expect, test } from "vitest";
import { RejectionLog } from "../../../src/auth/failure-limiter.ts";
import { ProtocolError } from "../../../src/protocol/handshake.ts";
import { FakeClock } from "../../support/fake-clock.ts";

test("rejections beyond the bound are logged once a minute, with their number", () => {
  const clock = new FakeClock();
  const logged: unknown[] = [];
  const rejectionLog = new RejectionLog(
    (message, _error, details) => logged.push([message.split(":")[0], details]),
    clock,
  );
  const add = (code: string, address = "10.0.0.1"): void => rejectionLog.record(new ProtocolError(code, "no"), address);
  add("AUTH");
  for (let index = 0; index < 100; index++) add("LIMIT");
  expect(logged).toEqual([
    ["a client was refused", { level: "warn", address: "10.0.0.1" }],
    ["too many wrong credentials", { level: "warn", address: "10.0.0.1", refused: 1 }],
  ]);
  clock.jump(59_999);
  add("LIMIT");
  expect(logged).toHaveLength(2);
  clock.jump(1);
  add("LIMIT", "10.0.0.2");
  expect(logged[2]).toEqual(["too many wrong credentials", { level: "warn", address: "10.0.0.2", refused: 101 }]);
});
