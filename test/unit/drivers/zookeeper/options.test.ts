// Meaningless options are refused and named when the driver is made; no secret is shown. Needs no server.

import { expect, test } from "vitest";
import type { ZooKeeperDriverOptions } from "../../../../src/drivers/zookeeper/driver.ts";
import { exponential, zookeeper } from "../../../../src/drivers/zookeeper/driver.ts";
import { systemClock } from "../../../../src/util/clock.ts";

const servers = [{ host: "zk1", port: 2_181 }];

test.each<readonly [keyof ZooKeeperDriverOptions, readonly unknown[]]>([
  ["servers", [undefined, null, [], "zk1:2181", [{}], [{ host: "zk1" }], [{ host: "", port: 1 }]]],
  ["servers", [[{ host: "zk1", port: 0 }], [{ host: "zk1", port: 65_536 }], [{ host: "zk1", port: "2181" }]]],
  ["chroot", [null, 5, "app", "/app/", "/a//b"]],
  ["root", [null, 5, "", "locks", "/locks/", "/a/../b"]],
  ["sessionMs", [null, 0, 99, -1, 1.5, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 31, 3_000_000_000, "soon"]],
  ["connectTimeout", [null, 0, -1, "soon", "25d"]],
  ["tokenBase", [null, 5, "5", -1n, 2n ** 62n]],
  ["auth", [null, "ana:canary", {}, [{}], [{ scheme: "digest" }], [{ scheme: 5, auth: "ana:canary" }]]],
  ["sasl", [null, "ana:canary", {}, { user: "ana" }, { user: "ana", password: 5 }]],
  ["tls", [null, 5, "canary", []]],
  ["family", [null, "semaphore"]],
  ["fair", [null, 1]],
  ["retry", [null, 5, "often"]],
  [
    "acl",
    [null, 5, [], [{}], [{ perms: 0, scheme: "world", id: "anyone" }], [{ perms: 32, scheme: "world", id: "anyone" }]],
  ],
  ["clock", [null, 5, {}]],
])("%s: invalid values are refused", (name, values) => {
  for (const value of values) {
    const createDriver = (): unknown => zookeeper({ servers, [name]: value } as never);
    expect(createDriver, `${value}`).toThrow(TypeError);
    expect(createDriver, `${value}`).toThrow(new RegExp(`^${name} must `));
    if (name === "auth" || name === "sasl") expect(createDriver).not.toThrow(/canary/);
  }
});

test.each([undefined, null, 5, "zookeeper://zk1", []])("%s instead of options is refused", (options) => {
  expect(() => zookeeper(options as never)).toThrow(/^options of zookeeper must be an object/);
});

test("an unknown option is refused: a mistyped one must not mean the default", () => {
  const mistyped = { servers, sesionMs: 5_000 } as never;
  expect(() => zookeeper(mistyped)).toThrow(/^zookeeper has no option "sesionMs"/);
});

test("every option is accepted together, and each at its bounds", () => {
  const allOptions: Required<ZooKeeperDriverOptions> = {
    servers: [...servers, { host: "::1", port: 65_535 }],
    chroot: "",
    root: "/",
    sessionMs: 2 ** 31 - 1,
    connectTimeout: "1ms",
    tokenBase: 2n ** 62n - 1n,
    auth: [],
    sasl: { user: "", password: "" },
    tls: () => ({}),
    family: "readWrite",
    fair: false,
    retry: exponential(1, 2),
    acl: [{ perms: 31, scheme: "world", id: "anyone" }],
    clock: systemClock,
  };
  expect(zookeeper(allOptions).name).toBe("zookeeper");
  expect(zookeeper({ servers, sessionMs: 100, tokenBase: 0n, chroot: "/app" }).name).toBe("zookeeper");
});
