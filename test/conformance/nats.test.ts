import { documentConformance } from "../support/stores/document-conformance.ts";

documentConformance("nats", { canWatch: true });
