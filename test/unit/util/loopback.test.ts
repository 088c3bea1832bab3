import { isIPv4 } from "node:net";
import { expect, test } from "vitest";
import { isLoopback } from "../../../src/util/loopback.ts";

const PARTS = ["0", "1", "01", "9", "10", "99", "100", "199", "200", "249", "250", "255", "256", "999", "", "1a"];

test("an IPv4 address is a loopback host if it begins with 127", () => {
  const hosts = PARTS.flatMap((part) => [`127.0.0.${part}`, `127.${part}.0.1`, `${part}.0.0.1`, `127.0.${part}`]);
  for (const host of [...hosts, "127.0.0.1.example", "127.0.0.1\n", "1127.0.0.1"]) {
    expect.soft([host, isLoopback(host)]).toEqual([host, isIPv4(host) && host.startsWith("127.")]);
  }
});

test.each(["localhost", "LOCALHOST", "::1", "[::1]", "[::ffff:127.0.0.1]"])("%s is a loopback host", (host) => {
  expect(isLoopback(host)).toBe(true);
});
