import { expect, test } from "vitest";
import type { Principal } from "../../../src/auth/access-control.ts";
import { ANONYMOUS } from "../../../src/auth/access-control.ts";
import { Client } from "../../../src/client/client.ts";
import { parseClientOptions } from "../../../src/client/options.ts";
import { memory } from "../../../src/drivers/memory.ts";
import { ClientPerAccount } from "../../../src/gateway/store-clients.ts";

test("an account that is removed and added again gets a client of its own account again", async () => {
  const account = { ...ANONYMOUS, name: "ana", isValid: true, can: ANONYMOUS.can };
  const accounts: Principal[] = [];
  const clients = new ClientPerAccount({ forAccount: () => account }, (principal) => {
    accounts.push(principal);
    return new Client(memory(), parseClientOptions({}), () => 0.5);
  });
  const first = clients.clientFor(account);
  expect(clients.clientFor(account)).toBe(first);
  account.isValid = false;
  clients.revalidatePrincipals();
  // a request that began before the removal
  expect(() => clients.clientFor(account)).toThrow(expect.objectContaining({ code: "AUTH" }));
  account.isValid = true;
  clients.revalidatePrincipals();
  expect(clients.clientFor(account)).not.toBe(first);
  expect(accounts).toHaveLength(2);
  await clients.close();
});
