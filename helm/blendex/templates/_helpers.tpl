{{- define "blendex.fullname" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "blendex.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "blendex.labels" -}}
{{ include "blendex.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "blendex.image" -}}
{{- if .Values.image.digest }}{{ .Values.image.repository }}@{{ .Values.image.digest }}{{ else }}{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "blendex.claim" -}}
{{ .Values.root.existingClaim | default (printf "%s-root" (include "blendex.fullname" .)) }}
{{- end }}

{{/* What only a secret may hold, by reference. */}}
{{- define "blendex.secrets" -}}
- name: BLENDEX_DATABASE_URL
  valueFrom:
    secretKeyRef:
      {{- if .Values.postgres.enabled }}
      name: {{ include "blendex.fullname" . }}-trial
      key: database-url
      {{- else }}
      name: {{ .Values.database.existingSecret }}
      key: {{ .Values.database.key }}
      {{- end }}
- name: BLENDEX_BROKER_URL
  {{- if .Values.redis.enabled }}
  value: redis://{{ include "blendex.fullname" . }}-redis:6379/0
  {{- else }}
  valueFrom:
    secretKeyRef:
      name: {{ .Values.broker.existingSecret }}
      key: {{ .Values.broker.key }}
  {{- end }}
{{- end }}

{{/* CPU only: an image or a node whose default runtime is nvidia's would otherwise hand a device to any pod. */}}
{{- define "blendex.environment" -}}
- name: NVIDIA_VISIBLE_DEVICES
  value: void
- name: CUDA_VISIBLE_DEVICES
  value: ""
- name: OMP_NUM_THREADS
  value: "1"
{{- end }}

{{/* The "restricted" pod security standard, and a little more. */}}
{{- define "blendex.containerSecurity" -}}
allowPrivilegeEscalation: false
privileged: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities:
  drop: [ALL]
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "blendex.podSecurity" -}}
automountServiceAccountToken: false
# Links of services would set variables such as BLENDEX_PORT, and settings are read from those.
enableServiceLinks: false
serviceAccountName: {{ include "blendex.fullname" . }}
securityContext:
  runAsNonRoot: true
  runAsUser: {{ .Values.security.runAsUser }}
  runAsGroup: {{ .Values.security.runAsGroup }}
  fsGroup: {{ .Values.security.runAsGroup }}
  # Otherwise every start would walk through all mirrors.
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end }}

{{/* The gate: nothing starts on a schema that it does not work with. */}}
{{- define "blendex.gate" -}}
- name: wait-for-schema
  image: {{ include "blendex.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  args: [db, check, --wait, {{ .Values.migration.waitSeconds | toString | quote }}]
  env:
    {{- include "blendex.environment" . | nindent 4 }}
    {{- include "blendex.secrets" . | nindent 4 }}
  resources:
    {{- toYaml .Values.migration.resources | nindent 4 }}
  securityContext:
    {{- include "blendex.containerSecurity" . | nindent 4 }}
  volumeMounts:
    - {name: tmp, mountPath: /tmp}
{{- end }}

{{- define "blendex.mounts" -}}
- {name: tmp, mountPath: /tmp}
- name: root
  mountPath: {{ .Values.root.path }}
  {{- with .Values.root.subPath }}
  subPath: {{ . }}
  {{- end }}
{{- range .Values.sources }}
- name: source-{{ .name }}
  mountPath: {{ .path }}
  readOnly: true
  {{- with .subPath }}
  subPath: {{ . }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "blendex.volumes" -}}
- name: tmp
  emptyDir: {sizeLimit: 256Mi}
- name: root
  persistentVolumeClaim:
    claimName: {{ include "blendex.claim" . }}
{{- range .Values.sources }}
- name: source-{{ .name }}
  persistentVolumeClaim:
    claimName: {{ .claim }}
    readOnly: true
{{- end }}
{{- end }}

{{/* Pods that are told of no other place spread over nodes, where they can. */}}
{{- define "blendex.place" -}}
{{- with .place.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .place.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .place.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "blendex.selector" .top | nindent 8 }}
        app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* Anywhere, but not where clouds answer with a node's credentials. */}}
{{- define "blendex.anywhere" -}}
- ipBlock:
    cidr: 0.0.0.0/0
    except: [169.254.0.0/16]
- ipBlock:
    cidr: ::/0
    except: ["fe80::/10", "fd00:ec2::/32"]
{{- end }}
