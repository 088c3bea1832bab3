/** The package entry holdfast/opentelemetry. */

export { type InstrumentOptions, instrument } from "./instrument.ts";
