// A gateway on a store that the test passes.

import type { Gateway } from "../../src/gateway/gateway.ts";
import { openGateway } from "../../src/gateway/gateway.ts";
import type { GatewayOptions } from "../../src/gateway/gateway-config.ts";
import { resolveGatewayConfig } from "../../src/gateway/gateway-config.ts";
import { expectNoSecret } from "./secret-scan.ts";
import { onCleanup } from "./server-fixture.ts";

/** A gateway that runs, and what it logs. */
export type TestGateway = Gateway & { readonly url: string; readonly logged: string[] };

/** Starts a gateway, with accounts if `accounts` names a file of them. */
export async function startGateway(
  options: Partial<Omit<GatewayOptions, "driver">> & Pick<GatewayOptions, "driver">,
): Promise<TestGateway> {
  const logged: string[] = [];
  const allOptions: GatewayOptions = {
    http: "127.0.0.1:0",
    log: (message, error) => void logged.push(error === undefined ? message : `${message}: ${error}`),
    ...options,
  };
  const { config, problems } = resolveGatewayConfig(allOptions);
  if (problems.length > 0) throw new Error(problems.map(({ message }) => message).join("; "));
  const gateway = await openGateway(allOptions, config);
  let closing: Promise<void> | null = null;
  const close = (): Promise<void> => {
    closing ??= gateway.close();
    return closing;
  };
  onCleanup(() => expectNoSecret(logged.join("\n"), "the gateway's log"));
  onCleanup(close);
  return { ...gateway, close, url: gateway.address, logged };
}
