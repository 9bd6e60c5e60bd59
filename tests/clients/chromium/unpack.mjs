// Unpacks the browser of the package and the libraries that it needs into the temporary folder.

import chromium from "@sparticuz/chromium";

chromium.setGraphicsMode = false;
await chromium.executablePath();
