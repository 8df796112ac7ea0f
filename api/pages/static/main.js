// Starts what the page at hand needs.
import { startActions } from "./actions.js";
import { startCommands } from "./commands.js";
import { startLive } from "./live.js";
import { startNotifications } from "./notifications.js";
import { startPlan } from "./plan.js";
import { startPrivate } from "./private.js";
import { startSecrets } from "./secrets.js";
import { startSorting } from "./sorting.js";
import { startTheme } from "./theme.js";
import { localTimes } from "./times.js";
import { startUpload } from "./upload.js";
import { startViewer } from "./viewer.js";

startTheme();
localTimes(document);
startActions();
startLive();
startPlan();
startPrivate();
startUpload();
startSecrets();
startNotifications();
startSorting();
startViewer();
startCommands();
