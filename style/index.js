import "./index.css";
import "./runs.css";
import "./help.css";
