// Unpacks the package's browser and the libraries that it needs into the temporary folder.

import { writeFile } from "node:fs/promises";
import { join } from "node:path";

import chromium from "@sparticuz/chromium";

chromium.setGraphicsMode = false;
await chromium.executablePath();

// The package looks for its fonts in folders of its usual environment. Without a font, pages with text fields crash.
const fonts = '<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig><dir prefix="relative">fonts</dir></fontconfig>';
await writeFile(join(process.env.TMPDIR, "fonts", "fonts.conf"), fonts);
