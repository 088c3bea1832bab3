// Checks values against schemas of the OpenAPI document. Stricter in one way: a member that the document does not name is a
// fault, so that the document cannot lag behind.

import type { ValidateFunction } from "ajv/dist/2020.js";
import { Ajv2020 } from "ajv/dist/2020.js";

type Schema = Readonly<Record<string, unknown>>;

const ajv = new Ajv2020({ allErrors: true });
ajv.addVocabulary(["components"]);
const validators = new Map<string, ValidateFunction>();

/** What is wrong with the value, each with where it is; empty: nothing. */
export function findSchemaFaults(value: unknown, schema: Schema, document: Schema): string[] {
  const text = JSON.stringify(schema);
  let validate = validators.get(text);
  if (validate === undefined) {
    const components = (document as { components: { schemas: Schema } }).components.schemas;
    validate = ajv.compile(closeObjects({ ...schema, components: { schemas: components } }) as Schema);
    validators.set(text, validate);
  }
  if (validate(value)) return [];
  return (validate.errors ?? []).map(
    ({ instancePath, message, params }) => `$${instancePath}: ${message} ${JSON.stringify(params)}`,
  );
}

/** Every object schema, with other members than its own forbidden. */
function closeObjects(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(closeObjects);
  if (typeof schema !== "object" || schema === null) return schema;
  const members = Object.entries(schema).map(([name, member]) => [name, closeObjects(member)] as const);
  const isObject = "type" in schema && schema.type === "object";
  return { ...Object.fromEntries(members), ...(isObject && { additionalProperties: false }) };
}
