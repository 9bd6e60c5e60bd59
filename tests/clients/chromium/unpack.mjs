// Unpacks the browser that the package holds, and the libraries that it needs, into the folder for temporary files.

import chromium from "@sparticuz/chromium";

chromium.setGraphicsMode = false;
await chromium.executablePath();
