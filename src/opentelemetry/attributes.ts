/** The attributes of metrics and spans. Keys are never among them, since each value would be a time series of its own. */

import type { Attributes } from "@opentelemetry/api";
import type { LockEvent } from "../client/events.ts";
import { safeListener } from "../errors.ts";

/** Returns what stands for a key in metrics and spans. */
export type KeyTemplate = (key: string) => string | undefined;

/** @param keyTemplate for requests without a template of their own */
export function toAttributes(event: LockEvent, keyTemplate: KeyTemplate | undefined): Attributes {
  const template = event.keyTemplate ?? applyTemplate(event.keys, keyTemplate);
  return {
    "holdfast.store": event.store,
    "holdfast.mode": event.mode,
    ...(template !== undefined && { "holdfast.key.template": template }),
  };
}

/** Tells errors apart by few values: the code of the error, or its class. */
export function errorTypeOf(error: unknown): string {
  const { code, name } = Object(error) as { readonly code?: unknown; readonly name?: unknown };
  if (typeof code === "string") return code;
  return typeof name === "string" ? name : "_OTHER";
}

/** An exception of the function is reported, and breaks no lock. */
function applyTemplate(keys: readonly string[], keyTemplate: KeyTemplate | undefined): string | undefined {
  if (keyTemplate === undefined) return undefined;
  let templates: readonly (string | undefined)[] = [];
  safeListener(() => {
    templates = keys.map((key) => keyTemplate(key));
  })();
  const names = new Set(templates.filter((template) => typeof template === "string"));
  return names.size === 0 ? undefined : [...names].join(", ");
}
