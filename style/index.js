import "./index.css";
import "./runs.css";
import "./help.css";
import "./capture.css";
