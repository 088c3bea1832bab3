import { expect, test } from "vitest";
import { clientNetwork } from "../../../src/util/client-network.ts";

test("addresses of one IPv6 network count as one address, and IPv4 inside IPv6 counts as IPv4", () => {
  expect(clientNetwork("192.0.2.1")).toBe("192.0.2.1");
  expect(clientNetwork("::ffff:10.1.2.3")).toBe("10.1.2.3");
  expect(clientNetwork("2001:db8:1:2::5")).toBe(clientNetwork("2001:0db8:1:2:ffff:1:2:3"));
  expect(clientNetwork("2001:db8:1:3::5")).not.toBe(clientNetwork("2001:db8:1:2::5"));
  expect(clientNetwork("::1")).toBe("0:0:0:0");
  expect(clientNetwork("2001:db8::")).toBe("2001:db8:0:0");
  expect(clientNetwork("fe80::1%eth0")).toBe("fe80:0:0:0");
});
