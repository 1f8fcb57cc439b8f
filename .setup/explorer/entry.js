// All that triton-viz's page imports, in one module: its import map leads each of the addresses here.
import { configureTextBuilder } from "troika-three-text";
import font from "@fontsource/inter/files/inter-latin-400-normal.woff";

export * from "three";
export { OrbitControls } from "three/examples/jsm/controls/OrbitControls.js";
export { Text } from "troika-three-text";

// Otherwise troika fetches both from a CDN. The numbers on the axes need no other font than this one.
configureTextBuilder({ defaultFontURL: font, unicodeFontsURL: "data:," });
