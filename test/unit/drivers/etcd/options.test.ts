import { expect, test } from "vitest";
import type { EtcdOptions } from "../../../../src/drivers/etcd/driver.ts";
import { etcd } from "../../../../src/drivers/etcd/driver.ts";

const servers = [{ host: "a", port: 2_379 }];

test.each([
  [undefined, "options of etcd must be an object"],
  [{}, "servers must be a list of at least one { host, port }"],
  [{ servers: [] }, "servers must be a list"],
  [{ servers: [{ host: "", port: 1 }] }, "servers must be a list"],
  [{ servers: [{ host: "a", port: 70_000 }] }, "servers must be a list"],
  [{ servers, user: "ana" }, "both user and password, or neither"],
  [{ servers, password: "secret" }, "both user and password, or neither"],
  [{ servers, user: "", password: "secret" }, "user must be a name"],
  [{ servers, user: "ana", password: ["secret"] }, "password must be a string"],
  [{ servers, prefix: 1 }, "prefix must be a text"],
  [{ servers, compatible: "yes" }, "compatible must be true or false"],
  [{ servers, commandTimeoutMs: 0 }, "commandTimeoutMs must be a whole number of milliseconds"],
  [{ servers, tokenBase: 1 }, "tokenBase must be a bigint"],
  [{ servers, tls: true }, "tls must be options of node:tls"],
  [{ servers, ttl: 1 }, 'etcd has no option "ttl"'],
])("%j is refused", (options, reason) => {
  let error: unknown;
  try {
    etcd(options as EtcdOptions);
  } catch (thrown) {
    error = thrown;
  }
  expect(error).toBeInstanceOf(TypeError);
  expect((error as Error).message).toContain(reason);
  expect((error as Error).message).not.toContain("secret");
});
